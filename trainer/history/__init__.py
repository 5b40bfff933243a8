"""What a training wrote down, and reading it."""
