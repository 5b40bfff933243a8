"""Actors: play with the newest policy, and record what happens."""
