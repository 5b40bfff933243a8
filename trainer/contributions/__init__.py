"""Experience from other machines: its form, its judge, and its way into the training."""
