"""Where the scheduler and the ledger disagree. Pure.

* What others know of and the ledger does not: jobs in the queue, claimed attempts, submissions that were given up.
* Jobs that have ended by their own word, and are still there for the scheduler. A slurmctld that is killed before it
  has saved an end takes the job for running until its node registers again, half an hour or more later. Nothing of the
  job is left, but until then it keeps its node, and a place of its user. A cancel of ours ends that.
"""

from __future__ import annotations

from typing import Any

from orchestrator.decisions.edits import with_attempt, with_submission
from orchestrator.decisions.evidence import Event, Evidence, Facts, event
from orchestrator.decisions.models import Attempt, Gone, Slot, Submission, SubmissionState
from orchestrator.executors.base import JobState


def adopt(slot: Slot, facts: Facts, events: list[Event]) -> Slot:
    """Add submissions and attempts that others know of and the ledger does not."""
    slot = _revived(slot, facts, events)
    known = {submission.token for attempt in slot.attempts for submission in attempt.submissions}
    found: list[tuple[int, Submission, bool]] = []
    for number, token, row in facts.rows_of_slot.get(slot.index, ()):
        if token not in known:
            at = row.submitted_at or row.started_at or facts.now
            found.append((number, _adopted(token, row.job_id, at), token in facts.ahead))
    claims = [(a.number, facts.evidence.get((slot.index, a.number))) for a in slot.attempts if a.verdict is None]
    if slot.index in facts.newest_claims:
        claims.append(facts.newest_claims[slot.index])
    current = slot.current
    for number, evidence in claims:
        claim = evidence.claim if evidence is not None else None
        old = current is not None and number < current.number
        if claim and claim.token and claim.token not in known and not old:
            # Dated by our clock: the node's may be wrong, and the job was surely accepted before this look.
            at = min(claim.at, facts.poll.at - 1.0)
            found.append((number, _adopted(claim.token, claim.job_id, at), False))
    for number, submission, ahead in found:
        if submission.token not in known:
            known.add(submission.token)
            known_of = next((a for a in slot.attempts if a.number == number), Attempt(number=number, ahead=ahead))
            jobs = (*known_of.submissions, submission)
            slot = with_attempt(slot, number, submissions=jobs, ahead=known_of.ahead)
            events.append({"kind": "adopted", "slot": slot.index, "attempt": number, "token": submission.token})
    return slot


def _revived(slot: Slot, facts: Facts, events: list[Event]) -> Slot:
    """With submissions that were given up, and are there after all: in the queue, or by the claim that they won."""
    attempts: dict[int, Attempt] = {}
    for attempt in slot.attempts:
        given_up = [s for s in attempt.submissions if not s.is_live and s.token in facts.heard_of]
        if back := {s.token for s in given_up if _is_back(s, slot, attempt, facts)}:
            again: dict[str, Any] = {"state": SubmissionState.SUBMITTED, "sighting": None}
            submissions = [s.model_copy(update=again) if s.token in back else s for s in attempt.submissions]
            attempts[attempt.number] = attempt.model_copy(update={"submissions": tuple(submissions)})
            events.extend(event("revived", slot, attempt, token=token) for token in sorted(back))
    if not attempts:
        return slot
    return slot.model_copy(update={"attempts": tuple(attempts.get(a.number, a) for a in slot.attempts)})


def _is_back(submission: Submission, slot: Slot, attempt: Attempt, facts: Facts) -> bool:
    """Of one that was given up. What the job itself said is final; the scheduler may run an id again."""
    gone = submission.sighting
    row = facts.poll.of(facts.job_dir(submission.token)) if facts.poll.error is None else None
    in_queue = row is not None and row.state is not JobState.ENDED
    if submission.state is SubmissionState.NOT_SUBMITTED:
        evidence = facts.evidence.get((slot.index, attempt.number), Evidence())
        claimed = evidence.claim is not None and evidence.claim.token == submission.token
        return (in_queue and facts.poll.at > submission.intent_at) or claimed
    return in_queue and (gone is None or (isinstance(gone, Gone) and not gone.by_job and facts.poll.at > gone.at))


def _adopted(token: str, job_id: str, at: float) -> Submission:
    return Submission(token=token, intent_at=at, state=SubmissionState.SUBMITTED, job_id=job_id, note="adopted")


#: What comes behind a job's record of its end takes seconds: its scratch folder is removed, Slurm's epilog runs.
LEFT_S = 120.0
LEFT_WHY = "it has ended by its own record, and Slurm does not know it"


def with_leftovers(slot: Slot, facts: Facts) -> Slot:
    """`slot` with the moment at which each job that has ended was first seen to be there still."""
    if facts.poll.error is not None:
        return slot
    # A job that is ending is on its way out.
    states = {JobState.PENDING, JobState.RUNNING}
    there = {token for _, token, row in facts.rows_of_slot.get(slot.index, ()) if row.state in states}
    for attempt in slot.attempts:
        for submission in attempt.submissions:
            gone, since = submission.sighting, None
            said = submission.state is SubmissionState.ENDED and isinstance(gone, Gone) and gone.by_job
            if said and submission.token in there:
                since = submission.left_since if submission.left_since is not None else facts.now
            if since != submission.left_since:
                slot = with_submission(slot, attempt.number, submission.token, left_since=since)
    return slot
