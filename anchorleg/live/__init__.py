"""Agents at play, on their way to whoever watches: what is wanted, the ring file, and what its cells hold."""
