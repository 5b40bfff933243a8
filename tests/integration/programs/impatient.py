"""`orchestrator` with less patience, so that tests need not wait for minutes: impatient.py NAME=SECONDS,… WORD…

Names: `submit` (an intent without a trace was never submitted), `command` (a Slurm command is killed),
`refused` (the next try after a submission that could not be made), `silent` (a heartbeat counts as stopped), `left` (a
job that has ended and is still there is cancelled), `record` (what a job has left is seen), `move` (a job waits before
another place is looked for).
"""

from __future__ import annotations

import importlib
import sys

from orchestrator.cli import main
from orchestrator.executors.slurm import SlurmExecutor

CONSTANTS = {
    "left": ("orchestrator.decisions.adoption", "LEFT_S"),
    "refused": ("orchestrator.decisions.edits", "TEMPORARY_WAIT_S"),
    "move": ("orchestrator.decisions.plan", "MOVE_AFTER_S"),
    "record": ("orchestrator.decisions.sightings", "RECORD_WAIT_S"),
    "silent": ("orchestrator.decisions.sightings", "HEARTBEAT_SILENT_S"),
}


def arm(name: str, seconds: float) -> None:
    """Replace one waiting time. Errors: KeyError, AttributeError where there is none of that name."""
    if name == "submit":
        SlurmExecutor.submit_grace_s = seconds
        return
    if name == "command":
        defaults = SlurmExecutor.__init__.__kwdefaults__ or {}
        assert "command_timeout_s" in defaults
        defaults["command_timeout_s"] = seconds
        return
    module_name, constant = CONSTANTS[name]
    module = importlib.import_module(module_name)
    getattr(module, constant)
    setattr(module, constant, seconds)


if __name__ == "__main__":
    for words in sys.argv[1].split(","):
        key, _, value = words.partition("=")
        arm(key, float(value))
    del sys.argv[1]
    main()
