"""Anchorleg's login-node side: what runs, for how long, and what comes next. No torch, no numpy."""
