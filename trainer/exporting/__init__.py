"""Policies as files for other programs: one file that needs nothing of Anchorleg."""
