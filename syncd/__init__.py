"""Anchorleg's file daemon between machines. Its commands come with a later release."""
