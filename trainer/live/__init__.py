"""Agents at play, shown to those who watch: from a training, or played on this machine."""
