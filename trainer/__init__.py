"""Anchorleg's compute side: learn, act and evaluate."""
