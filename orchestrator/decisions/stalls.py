"""Programs that live and do nothing: their reports of progress stand still while their job's heart beats. Pure.

Only time that we watched counts: neither a controller that was away, nor a clock that jumped, makes a program look
stalled. What is usual is learnt from the slot's own reports, so that a program that reports seldom is given its time.
"""

from __future__ import annotations

from typing import Any

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Attempt, Slot, Submission
from orchestrator.decisions.sightings import HEARTBEAT_SILENT_S
from orchestrator.executors.base import JobState

#: One look counts for a fraction of the limit at most, so that a stall is seen by several looks, never by one.
LOOKS = 4
#: A program may be silent for this many times its usual.
TIMES_USUAL = 5.0
#: The usual silence comes down slowly: an evaluation every half hour is usual, too.
FORGET = 0.02
#: A job claims its attempt within seconds, behind whatever slurm.setup does: what takes so many times as long as a
#: program may be silent will never begin.
BEGIN_STALLS = 3
#: Two heartbeats until the shim has seen the request, 30 s for the stacks, and the job's own end.
ABORT_WAIT_S = 150.0


def watched(
    attempt: Attempt, evidence: Evidence, since_last_look_s: float, stall_s: float, now: float
) -> dict[str, Any]:
    """What changes of `attempt`: what its program reported, and for how long we have watched it report nothing new
    while its job's heart beat, or its job run without a claim.
    """
    progress = evidence.progress
    if evidence.claim is None:
        if not any(submission.was_seen(JobState.RUNNING) for submission in attempt.live):
            return {}
    elif progress is None:
        return {}
    elif (mark := f"{progress.step} {progress.checkpoint_step} {progress.at}") != attempt.progress_mark:
        return {"progress_mark": mark, "quiet_s": 0.0}
    elif not _beats(attempt, now):  # suspended, or its node or folder hangs: its program cannot report
        return {}
    looked_s = min(max(since_last_look_s, 0.0), stall_s / LOOKS)
    return {"quiet_s": attempt.quiet_s + looked_s} if looked_s else {}


def usual_after(slot: Slot, before: Attempt, after: Attempt, since_last_look_s: float, stall_s: float) -> float:
    """The slot's usual silence, after one more report was seen (or none)."""
    if not before.progress_mark or after.progress_mark == before.progress_mark:
        return slot.usual_s
    silence_s = before.quiet_s + min(max(since_last_look_s, 0.0), stall_s / LOOKS)
    return max(silence_s, slot.usual_s + FORGET * (silence_s - slot.usual_s))


def limit_s(slot: Slot, stall_s: float) -> float:
    """How long this slot's program may report nothing new."""
    return max(stall_s, TIMES_USUAL * slot.usual_s)


def never_begins(attempt: Attempt, submission: Submission, stall_s: float) -> bool:
    """Whether its job has been watched to run for so long, and has not even claimed the attempt."""
    runs = attempt.claimed_by is None and submission.was_seen(JobState.RUNNING)
    return runs and attempt.quiet_s >= BEGIN_STALLS * stall_s


def is_stalled(slot: Slot, attempt: Attempt, submission: Submission, stall_s: float, now: float) -> bool:
    """Whether a running claimant has been silent for too long, and it is neither blindness nor its node's trouble."""
    runs = submission.token == attempt.claimed_by and submission.was_seen(JobState.RUNNING)
    asked = attempt.asked_to_hand_over_at is not None or attempt.aborted_at is not None
    reports = bool(attempt.progress_mark) and _beats(attempt, now)
    return runs and reports and not asked and attempt.quiet_s >= limit_s(slot, stall_s)


def _beats(attempt: Attempt, now: float) -> bool:
    beat_at = attempt.heartbeat_changed_at
    return beat_at is not None and abs(now - beat_at) <= HEARTBEAT_SILENT_S
