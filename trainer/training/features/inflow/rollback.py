"""Where a training would have to go back to, so that it never learned from a contributor; and going there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from anchorleg.job import CheckpointRef, Job, attempt_numbers, candidates_before
from anchorleg.rollback import Rollback, can_go_on, roll_back
from trainer.sharing.journal import Adopted, Entry, Mixed, Taken, entries, of_line


def first_taken(job: Job, who: str) -> int | None:
    """The step at which rows of `who` entered this training first; None: they never did. Errors: OSError."""
    return min((entry.step for entry in of_line(job.slot_dir) if _is_of(entry, who)), default=None)


def learned_with(job: Job, who: str) -> tuple[int, int] | None:
    """(the slot, the own step) of the first learner that was taken over, or mixed in, from a slot that had taken rows
    of `who` by then, in any attempt; None: there is none. Errors: OSError.
    """
    firsts: dict[int, float] = {}
    for entry in of_line(job.slot_dir):
        for slot, until in _learners_of(entry):
            if slot not in firsts:
                firsts[slot] = _first_in_any_attempt(job.run_dir / "slots" / str(slot), who)
            if firsts[slot] <= until:
                return slot, entry.step
    return None


def _first_in_any_attempt(slot_dir: Path, who: str) -> float:
    folders = [slot_dir / "attempts" / str(attempt) for attempt in attempt_numbers(slot_dir)]
    return min((one.step for folder in folders for one in entries(folder) if _is_of(one, who)), default=math.inf)


def _learners_of(entry: Entry) -> list[tuple[int, int]]:
    """(slot, its step) of each learner that came in with `entry`."""
    if isinstance(entry, Adopted):
        return [(entry.adopt, entry.of)]
    return [(peer.slot, peer.of) for peer in entry.mix] if isinstance(entry, Mixed) else []


def _is_of(entry: Entry, who: str) -> bool:
    return isinstance(entry, Taken) and entry.who == who


def newest_before(job: Job, step: int) -> CheckpointRef | None:
    """The newest checkpoint of `job`'s line from before `step` that one can go on from; None: there is none."""
    line = candidates_before(job.slot_dir, job.attempt + 1)
    return next((ref for ref in line if ref.step < step and can_go_on(ref.path)), None)


def unlearn(job: Job, wanted: Literal["never", "ask", "auto"], who: str, say: Callable[[str], None]) -> bool:
    """What was learned from rows of `who` is still there: from the next attempt on the slot goes on from a checkpoint
    before (True: this attempt ends, unsaved), or the user is told how. Errors: OSError, with nothing said; ValueError.
    """
    first, ends = first_taken(job, who) if wanted != "never" else None, False
    if first is not None:
        ref, learned = newest_before(job, first), f"the training has learned from rows of {who} since step {first:,}"
        if ref is None:
            say(f"{learned}; no earlier checkpoint is left, so this cannot be undone")
        elif wanted == "ask":
            back = f"orchestrator rollback {job.slot} --to {ref.step} --without {who} --run {job.run_name}"
            say(f"{learned}; to go back to the last checkpoint from before, of step {ref.step:,}, type `{back}`")
        elif job.superseded_by() is None:
            why = f"experience of {who} was false"
            roll_back(job.slot_dir, Rollback(job.attempt, ref.step, time.time(), why, who))
            ends = True
            say(f"{learned}: the next job continues from step {ref.step:,}, without them")
    try:
        if (found := learned_with(job, who)) is not None:
            say(
                f"the learner of slot {found[0]}, adopted at step {found[1]:,}, also learned from rows of {who}: "
                "to undo it, roll back to before that step (docs/laptops.md)"
            )
    except OSError as error:  # another slot's journal: nothing of ours waits for it
        why = error.strerror or str(error)
        say(f"it is unknown whether an adopted learner used rows of {who} ({why})")
    return ends
