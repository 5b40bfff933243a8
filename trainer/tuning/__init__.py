"""What this machine can give."""
