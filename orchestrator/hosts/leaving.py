"""The end of a run's jobs because the machine under them is taken away: a wish to stop that a cloud's notice makes.

The command ends with 75 then, and the same command goes on: here after a false alarm, else on another machine that sees
the run folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.controller import HAND_OVER_MARGIN_S
from orchestrator.decisions.models import Ledger, SlotStatus
from orchestrator.errors import HandedOver
from orchestrator.executors.notice import Cloud, Notice, NoticeWatch
from orchestrator.run.ledger import read_control, write_control
from orchestrator.run.rundir import Run, RunDir

#: Who wished the end of a run whose machine goes.
PREEMPTED = "preemption notice"


@contextmanager
def notices_heeded(run: Run, run_dir: RunDir, say: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile a notice stops the run, where the config asks for that; an old notice does before the first job."""
    asked = run.config.relay.preemption_notice
    if asked == "none":
        yield
        return
    clouds: tuple[Cloud, ...] = ("aws", "gcp") if asked == "auto" else (asked,)
    watch = NoticeWatch(clouds, os.environ, lambda notice: _stop(run, run_dir, notice, say), say)
    watch.begin()
    try:
        yield
    finally:
        watch.end()


def grace_of(run: Run, grace_s: float | None) -> float:
    """How long (seconds) jobs have to hand over."""
    return float(run.config.lead_seconds) + HAND_OVER_MARGIN_S if grace_s is None else grace_s


def _stop(run: Run, run_dir: RunDir, notice: Notice, say: Callable[[str], None]) -> None:
    if read_control(run_dir).wish != "run":
        return  # somebody wished it before, and then it is stopped and not handed over
    write_control(run_dir, "stop", now=time.time(), by=PREEMPTED, grace_s=grace_of(run, None))
    say(f"{notice.words}: every job is asked to save and end")


def report_leaving(ledger: Ledger, run: Run) -> None:
    """Errors: HandedOver, unless nothing is left to do anywhere."""
    over = {SlotStatus.FINISHED, SlotStatus.DROPPED, SlotStatus.BEHIND}
    left = [slot for slot in ledger.slots[: run.config.slots] if slot.status not in over]
    if not left:
        return
    raise HandedOver("machine.taken", name=run.config.run_name)
