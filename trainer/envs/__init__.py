"""Environments of any suite: stepping, snapshots, vectors of them."""
