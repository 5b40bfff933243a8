"""`orchestrator doctor`: what is wrong with a place before a run finds out, and what to write into the config."""
