"""One connection: frames, the server's half and the client's."""
