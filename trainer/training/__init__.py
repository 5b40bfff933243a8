"""One attempt: from what it starts with to what it hands over."""
