"""Arms stepped in C, with the same bits as in Python."""
