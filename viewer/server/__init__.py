"""One process, one port or one Unix socket: a few static files, and one websocket for everything else."""
