"""The machine that trains: its devices, processor and memory."""
