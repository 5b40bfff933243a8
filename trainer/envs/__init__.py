"""Meta-World environments: stepping, snapshots, vectors of them."""
