"""A look of the reader's own, where the controller's ledger is old: what it knows and cannot write, others must tell.

A full disk, a quota or a frozen process keeps a living controller from writing what it sees. So the reader looks as a
tick does (the jobs' files, the queue, the history), folds that into the ledger in memory, and writes, submits and
cancels nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from orchestrator.decisions.models import Ledger
from orchestrator.disk import left_on_full_disk
from orchestrator.executors.base import View
from orchestrator.run.rundir import Run, RunDir

#: A controller looks at least once a minute (controller.BEAT_S); twice that is worth a word, and a look.
LATE_LOOK_S = 150.0
#: A poll comes a tenth late at most (controller.Controller spreads them).
LATEST_POLL = 1.1
#: On a full disk the first look that was due and is not written is enough. So long may the writing take.
WRITING_S = 5.0
#: Who shows a run again and again asks the queue no more often than a controller does.
AGAIN_S = 30.0
#: Somebody waits for the screen: half of Slurm's own patience is enough to call it silent.
PATIENCE_S = 10.0


class SecondLook(View):
    """`at`: when the reader looked (unix seconds). `free_bytes`: on the run folder's disk, where that is full (else
    None: nobody knows why the controller writes nothing). `out_of_inodes`: it is full of files. `queue_error`: why the
    queue was not seen, else empty.
    """

    at: float
    free_bytes: int | None = None
    out_of_inodes: bool = False
    queue_error: str = ""


@dataclass(frozen=True)
class OwnLook:
    """What a reader saw: the ledger as a tick would make it now, and what has happened since the written one."""

    look: SecondLook
    ledger: Ledger
    events: tuple[Mapping[str, Any], ...]


_kept: dict[Path, tuple[float, OwnLook]] = {}


def second_look(run: Run, run_dir: RunDir, ledger: Ledger, now: float, *, looked_after: bool) -> OwnLook | None:
    """The reader's own look at `now` (unix seconds), at most one in `AGAIN_S` for each run; None where `ledger` is as
    new as it should be. `looked_after`: a controller lives, or cron has the run.
    """
    left = left_on_full_disk(run_dir.path)
    late_s = LATE_LOOK_S if left is None else LATEST_POLL * run.poll_s + WRITING_S
    if now - ledger.written_at <= late_s or (left is None and not looked_after):
        return None
    before = _kept.get(run_dir.path)
    if before is not None and monotonic() - before[0] < AGAIN_S and before[1].ledger.written_at == ledger.written_at:
        return before[1]
    try:
        seen = _looked(run, run_dir, ledger, now, left)
    except OSError:
        return None
    _kept[run_dir.path] = monotonic(), seen
    return seen


def _looked(run: Run, run_dir: RunDir, ledger: Ledger, now: float, left: int | None) -> OwnLook:
    from orchestrator.decisions.fold import fold  # noqa: PLC0415 - a screen of a healthy run needs none of it
    from orchestrator.observe import gather_facts  # noqa: PLC0415
    from orchestrator.run.pick import make_executor  # noqa: PLC0415

    executor = make_executor(run, run_dir, patience_s=PATIENCE_S)
    poll = executor.poll()
    facts, _ = gather_facts(run, run_dir, executor, ledger, poll, now)
    folded, events = fold(ledger, facts)
    told = SecondLook(at=now, free_bytes=left, out_of_inodes=facts.out_of_inodes, queue_error=poll.error or "")
    return OwnLook(told, folded, tuple({"at": now, **event} for event in events))
