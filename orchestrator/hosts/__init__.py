"""Where a controller lives: in the foreground, as a daemon, or for one tick. And how it is ended."""
