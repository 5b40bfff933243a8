"""Who may come in, and how a machine gets its key, its settings and its way there."""
