"""Other ways to train the same, for the benches."""
