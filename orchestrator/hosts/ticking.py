"""The controller once: for a person, for a crontab, and for a job that runs a failover tick."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from anchorleg.output import say
from orchestrator.controller import Controller
from orchestrator.decisions.models import Ledger, Slot, SlotStatus, SubmissionState
from orchestrator.failover import HOLDER
from orchestrator.hosts.display import log_line
from orchestrator.hosts.hook import Hook
from orchestrator.hosts.host import make_controller
from orchestrator.run.lease import Lease
from orchestrator.run.rundir import Run, RunDir, load_run
from orchestrator.screens.board import BoardWriter


def tick(run_dir: RunDir) -> None:
    """One tick, for a person or a crontab. Errors: LeaseHeld."""
    _tick(load_run(run_dir), run_dir, Lease.take_patiently(run_dir, "tick"), say, Controller.tick)


def tick_for_job(run_dir: RunDir) -> None:
    """One tick, for a job that ends without a controller, told in controller.log. Errors: LeaseHeld, at once."""
    run, lease = load_run(run_dir), Lease.take(run_dir, HOLDER, now=time.time())
    _tick(run, run_dir, lease, partial(log_line, run_dir), tick_as_job)


def _tick(
    run: Run, run_dir: RunDir, lease: Lease, say: Callable[[str], None], act: Callable[[Controller], None]
) -> None:
    """The board is written when the lease is free again: that may take long on a slow disk."""
    hook = Hook(run, run_dir, say)
    try:
        act(make_controller(run, run_dir, lease, say, hook))
    finally:
        lease.release()
    BoardWriter(run, run_dir).write()
    hook.close()


def tick_as_job(controller: Controller) -> None:
    """One tick that leaves nothing for later, when nobody may come: what it finds was never accepted, a second one asks
    for again at once.
    """
    attempts = [slot.current for slot in controller.ledger.slots if slot.current]
    known = {submission.token for attempt in attempts for submission in attempt.submissions}
    for _ in range(2):
        controller.ledger = without_waits_for_room(controller.ledger)
        controller.tick()
        waiting = [slot.current for slot in controller.ledger.slots if waits_for_room(slot)]
        if not any(attempt.submissions[-1].token in known for attempt in waiting if attempt):
            return


def without_waits_for_room(ledger: Ledger) -> Ledger:
    """`ledger` in which slots that wait for room may try again at once: later, no job may be left that looks."""
    slots = tuple(
        slot.model_copy(update={"not_before": 0.0}) if waits_for_room(slot) else slot for slot in ledger.slots
    )
    return ledger.model_copy(update={"slots": slots, "full_until": 0.0})


def waits_for_room(slot: Slot) -> bool:
    """Whether its last submission was refused, and none was made since."""
    attempt = slot.current
    if slot.status is not SlotStatus.ACTIVE or attempt is None or attempt.verdict is not None or attempt.live:
        return False
    return bool(attempt.submissions) and attempt.submissions[-1].state is SubmissionState.NOT_SUBMITTED
