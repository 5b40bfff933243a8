"""A run's folder, who owns it, and what is kept there."""
