"""Meta-World: its tasks, goals and environments."""
