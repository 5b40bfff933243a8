"""Evaluations beside the training: which are wanted, the process that makes one, and their queue in the loop."""
