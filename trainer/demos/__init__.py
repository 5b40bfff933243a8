"""Demonstrations: films and recorded episodes, kept as frames; what is learned from them; other people's data sets."""
