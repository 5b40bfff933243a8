"""Agents at play on the page: who is shown, asking for them, reading what comes, playing here."""
