"""What people see of a run: read from its folder, in words, tables and lines."""
