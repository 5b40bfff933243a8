"""The verbs of the `orchestrator` command, by what they are about. `orchestrator.cli` puts them together."""
