"""Weights & Biases while it trains: a process beside the training that sends the journals' rows as they are written."""
