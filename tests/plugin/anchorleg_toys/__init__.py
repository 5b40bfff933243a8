"""A suite and an algorithm that are none of Anchorleg's own."""
