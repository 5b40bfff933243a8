"""What makes features of one observation, a file for each: found by its name."""
