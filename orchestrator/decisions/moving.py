"""A waiting job that would begin at once in another place (`slurm.alternatives`) is submitted there instead. Pure."""

from __future__ import annotations

from orchestrator.decisions.models import Attempt, Ledger, Slot, Submission
from orchestrator.executors.base import JobState

#: Why such a job is cancelled: the next one of its slot goes where it would begin first.
MOVED = "it can begin at once in another place"
#: A job waits so long before another place is looked for. After each move twice as long: what sbatch --test-only
#: expects need not come true, and a new job begins to wait anew.
MOVE_AFTER_S = 300.0


def longest_waiting(ledger: Ledger, now: float) -> tuple[Slot, Attempt, Submission] | None:
    """The waiting job whose place is to be looked at next; None: none has waited long enough."""
    found = [
        (submission.intent_at, slot.index, slot, slot.current, submission)
        for slot in ledger.slots
        if slot.current is not None and slot.current.claimed_by is None
        for submission in slot.current.live
        if submission.was_seen(JobState.PENDING) and submission.cancelled_at is None
        if now - submission.intent_at >= MOVE_AFTER_S * 2 ** _moves(slot)
    ]
    _, _, slot, attempt, submission = min(found, key=lambda one: one[:2], default=(0, 0, None, None, None))
    return (slot, attempt, submission) if slot and attempt and submission else None


def _moves(slot: Slot) -> int:
    """How often it was moved since a job of it began."""
    ended = [attempt.cause == MOVED for attempt in slot.attempts if attempt.verdict is not None]
    return next((count for count, moved in enumerate(reversed(ended)) if not moved), len(ended))
