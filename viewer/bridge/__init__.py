"""A page of another machine's viewer, over the standard input and output of an ssh: no port, no socket over there."""
