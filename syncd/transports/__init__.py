"""Ways to the other side: one interface (`base`), three carriers."""
