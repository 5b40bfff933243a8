"""Jobs that have ended by their own word, and are still there for the scheduler. Pure.

A slurmctld that is killed before it has saved an end takes the job for running until its node registers again, half an
hour or more later. Nothing of the job is left, but until then it keeps its node, and a place of its user. A cancel ends
that: it is ours, and says nothing of how the job ended.
"""

from __future__ import annotations

from orchestrator.decisions.actions import Cancel
from orchestrator.decisions.edits import with_submission
from orchestrator.decisions.facts import Facts
from orchestrator.decisions.models import Attempt, Gone, Slot, Submission, SubmissionState
from orchestrator.executors.base import JobState

#: What comes behind a job's record of its end takes seconds: its scratch folder is removed, Slurm's epilog runs.
LEFT_S = 120.0
WHY = "it has ended by its own record, and Slurm does not know"
#: Where the scheduler may be wrong. A job that is ending is on its way out.
_THERE = frozenset({JobState.PENDING, JobState.RUNNING})


def with_leftovers(slot: Slot, facts: Facts) -> Slot:
    """`slot` with the moment at which each job that has ended was first seen to be there still."""
    if facts.poll.error is not None:
        return slot
    rows = facts.rows_of_slot.get(slot.index, ())
    there = {token for _, token, row in rows if row.state in _THERE}
    news = {}
    for attempt in slot.attempts:
        for submission in attempt.submissions:
            since = None
            if submission.token in there and has_said_its_end(submission):
                since = submission.left_since if submission.left_since is not None else facts.now
            if since != submission.left_since:
                news[attempt.number, submission.token] = since
    for (number, token), since in news.items():
        slot = with_submission(slot, number, token, left_since=since)
    return slot


def has_said_its_end(submission: Submission) -> bool:
    """Whether it is over by its own word, which is final."""
    gone = submission.sighting
    return submission.state is SubmissionState.ENDED and isinstance(gone, Gone) and gone.by_job


def is_left(attempt: Attempt) -> bool:
    """Whether the scheduler still has a job of this attempt that has ended."""
    return any(submission.left_since is not None for submission in attempt.submissions)


def cancels(slot: Slot, now: float, again_s: float) -> list[Cancel]:
    """The jobs of a slot to take out, each again after `again_s` while it is still there."""
    found = []
    for attempt in slot.attempts:
        for submission in attempt.submissions:
            since, at = submission.left_since, submission.cancelled_at
            if submission.job_id is None or since is None or now - since < LEFT_S:
                continue
            if at is None or abs(now - at) >= again_s:
                found.append(Cancel(slot.index, attempt.number, submission.token, submission.job_id, WHY))
    return found
