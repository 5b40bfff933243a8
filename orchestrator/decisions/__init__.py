"""What a tick decides: frozen models and pure functions over them. No clock, no disk, no scheduler."""
