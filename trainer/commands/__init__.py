"""The verbs of the `trainer` command that came after `train` and `evaluate`, one module a noun."""
