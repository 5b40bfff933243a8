"""What a training does beside learning; the loop knows none of it by name."""
