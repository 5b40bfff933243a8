"""Agents at play, shown to whoever watches: from a training, or played on this machine."""
