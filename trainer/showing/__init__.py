"""Films and curves."""
