"""Updates of plain nets on a CPU, compiled: no call of torch between two numbers."""
