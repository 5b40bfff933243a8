"""Queued successors: when to queue one, when it becomes the slot's current attempt, when it must not run. Pure."""

from __future__ import annotations

from anchorleg.job import HANDED_OVER
from orchestrator.decisions.models import Attempt, Slot, SlotStatus, Submission, Verdict
from orchestrator.executors.base import JobState

#: After a refusal, a decline or an end in the queue: the current job has no need of it, and asking again costs the
#: scheduler as much as a real submission.
AHEAD_WAIT_S = 600.0
#: Of so many jobs in a row that end long before their time, by their own will, the next one has to wait.
EARLY_ENDS = 3


def running_claimant(attempt: Attempt | None) -> Submission | None:
    """The submission that runs `attempt` for certain: claimed, in the queue, with an id."""
    for submission in attempt.live if attempt is not None else ():
        claims = attempt is not None and submission.token == attempt.claimed_by
        if claims and submission.was_seen(JobState.RUNNING) and submission.job_id:
            return submission
    return None


def wants_successor(slot: Slot, newest_folder: int, now: float) -> tuple[int, str] | None:
    """(attempt to queue, job to queue it behind); None where none is wanted now."""
    current, successor = slot.current, slot.successor
    if slot.status is not SlotStatus.ACTIVE or current is None or now < slot.ahead_not_before:
        return None
    if slot.early_ends >= EARLY_ENDS:
        return None  # it would begin without the wait
    settled = current.verdict is None and current.asked_to_hand_over_at is None and current.aborted_at is None
    claimant = running_claimant(current)
    if not settled or claimant is None or claimant.job_id is None:
        return None
    if any(s is not claimant for attempt in slot.attempts for s in attempt.live):
        return None
    later = [attempt for attempt in slot.attempts if attempt.number > current.number]
    if any(attempt.verdict is Verdict.CANCELLED for attempt in later):
        return None  # a person took it out of the queue; the ordinary way remains
    if successor is not None:
        return successor.number, claimant.job_id
    highest = max(attempt.number for attempt in slot.attempts)
    return max(highest, newest_folder) + 1, claimant.job_id


def began_behind(later: Attempt | None, attempt: Attempt) -> bool:
    """Whether `later` has begun as the queued successor of `attempt`: so the job of that one is over for Slurm."""
    behind = {s.after for s in later.submissions if s.token == later.claimed_by} if later is not None else set()
    return any(s.job_id is not None and s.job_id in behind for s in attempt.submissions)


def may_follow(current: Attempt | None, slot: Slot, now: float) -> bool:
    """Whether a queued successor is what comes next, now that the attempt before it has ended.

    Its own shim decides by the same facts (`unneeded`): after a crash, or a SIGTERM of somebody, it declines.
    """
    if slot.status is not SlotStatus.ACTIVE or slot.not_before > now:
        return False
    if current is None or current.exit_code is None:
        return True
    return current.exit_code == HANDED_OVER and not current.terminated


def promoted(slot: Slot, now: float) -> Slot:
    """`slot` with its successor as current attempt, where the one before it has ended and it may follow."""
    current, successor = slot.current, slot.successor
    if successor is None or (current is not None and current.verdict is None):
        return slot
    if not (may_follow(current, slot, now) if successor.live else slot.status is SlotStatus.ACTIVE):
        return slot
    first = successor.model_copy(update={"ahead": False})
    attempts = tuple(first if attempt is successor else attempt for attempt in slot.attempts)
    return slot.model_copy(update={"attempts": attempts, "why": "" if successor.live else slot.why})
