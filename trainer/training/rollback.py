"""Where a training would have to go back to, so that it never learned from a contributor; and going there."""

from __future__ import annotations

import time

from anchorleg.job import CheckpointRef, Job, candidates_before, lineage
from anchorleg.rollback import Rollback, roll_back
from trainer.sharing.journal import Taken, entries


def first_taken(job: Job, who: str) -> int | None:
    """The step at which rows of `who` entered this training first; None: they never did. Errors: OSError."""
    steps = [
        entry.step
        for stretch in lineage(job.slot_dir)
        for entry in entries(job.slot_dir / "attempts" / str(stretch.attempt))
        if isinstance(entry, Taken) and entry.who == who
        if entry.step > stretch.after and (stretch.until is None or entry.step <= stretch.until)
    ]
    return min(steps, default=None)


def newest_before(job: Job, step: int) -> CheckpointRef | None:
    """The newest checkpoint of `job`'s line from before `step` that is still there; None: there is none."""
    return next((ref for ref in candidates_before(job.slot_dir, job.attempt + 1) if ref.step < step), None)


def roll_back_to(job: Job, ref: CheckpointRef, who: str) -> None:
    """From the next attempt on the slot goes on from `ref`, without the experience of `who`. Errors: OSError."""
    why = f"experience of {who} was not true"
    roll_back(job.slot_dir, Rollback(job.attempt, ref.step, time.time(), why, who))


def advice(job: Job, ref: CheckpointRef | None, who: str, first: int) -> str:
    """What a person can do about rows of `who` that were learned from since step `first`."""
    if ref is None:
        return (
            f"the training has learned from rows of {who} since step {first:,}; no checkpoint from before is left, so "
            "what it learned stays"
        )
    return (
        f"the training has learned from rows of {who} since step {first:,}; the newest checkpoint from before is that "
        f"of step {ref.step:,}: `orchestrator rollback {job.slot} --to {ref.step} --without {who}` goes back to it"
    )
