"""For programs of one's own, also in other people's frameworks: docs/programs.md. Nothing else of ours imports them."""
