"""Agents at play, on their way to watchers: what is wanted, the ring file, and what its cells hold."""
