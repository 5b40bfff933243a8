"""Where a controller lives: in the foreground, as a daemon, once a minute by cron. And how it is ended."""
