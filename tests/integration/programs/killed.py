"""`orchestrator` that kills itself with SIGKILL: killed.py WHERE CALL WORD…

WHERE: `after-intent` (before the executor hears of a job), `after-submit` (before the outcome is written),
`between-ticks`, `never`. CALL: at the how-many-th time. An intent counts as never submitted after 2 s, not
minutes, where there was no room the next look is 2 s later, and what will never start is believed after 2 s.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from orchestrator.cli import main
from orchestrator.controller import Controller
from orchestrator.decisions import edits, sightings
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.slurm import SlurmExecutor

GRACE_S = 2.0
#: Nor is room looked for only once a minute.
QUOTA_WAIT_S = 2.0
#: Nor must a job be seen for a minute that will never start.
FOR_EVER_S = 2.0


def die_at(call: int) -> Any:
    """A function that returns until it is called for the `call`-th time."""
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


def arm(where: str, call: int) -> None:
    """Set the trap."""
    count = die_at(call)
    for executor in (LocalExecutor, SlurmExecutor):
        original = executor.submit

        def submit(self: Any, request: Any, original: Any = original) -> Any:
            if where == "after-intent":
                count()
            outcome = original(self, request)
            if where == "after-submit":
                count()
            return outcome

        executor.submit = submit  # type: ignore[method-assign]
    if where == "between-ticks":
        Controller._wait = lambda *_: count()  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    LocalExecutor.submit_grace_s = GRACE_S
    edits.QUOTA_WAIT_S = QUOTA_WAIT_S
    sightings.FOR_EVER_S = FOR_EVER_S
    SlurmExecutor.submit_grace_s = GRACE_S
    sys.argv[1:] = sys.argv[3:]
    main()
