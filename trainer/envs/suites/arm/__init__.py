"""An arm of seven joints that reaches for places, in MuJoCo."""
