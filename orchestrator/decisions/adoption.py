"""What others know of and the ledger does not: jobs in the queue, claimed attempts, submissions that were given up.

A controller that lost its memory finds its jobs again by this. Pure.
"""

from __future__ import annotations

from typing import Any

from orchestrator.decisions.edits import with_attempt
from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.facts import Event, Facts, event
from orchestrator.decisions.models import Attempt, Gone, Slot, Submission, SubmissionState
from orchestrator.executors.base import JobState


def adopt(slot: Slot, facts: Facts, events: list[Event]) -> Slot:
    """Add submissions and attempts that others know of and the ledger does not."""
    slot = revive(slot, facts, events)
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


def revive(slot: Slot, facts: Facts, events: list[Event]) -> Slot:
    """Submissions that were given up, and are there after all: in the queue, or by the claim that they won.

    What the job itself said (its exit record, its duplicate's record) is final; the scheduler's word is not: it may run
    an id again.
    """
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
    state, gone = submission.state, submission.sighting
    if state is not SubmissionState.NOT_SUBMITTED and state is not SubmissionState.ENDED:
        return False
    if state is SubmissionState.ENDED and isinstance(gone, Gone) and (gone.by_job or facts.poll.at <= gone.at):
        return False
    row = facts.poll.of(facts.job_dir(submission.token)) if facts.poll.error is None else None
    in_queue = row is not None and row.state is not JobState.ENDED
    if state is SubmissionState.NOT_SUBMITTED:
        evidence = facts.evidence.get((slot.index, attempt.number), Evidence())
        claimed = evidence.claim is not None and evidence.claim.token == submission.token
        return (in_queue and facts.poll.at > submission.intent_at) or claimed
    return in_queue and (gone is None or isinstance(gone, Gone))


def _adopted(token: str, job_id: str, at: float) -> Submission:
    return Submission(token=token, intent_at=at, state=SubmissionState.SUBMITTED, job_id=job_id, note="adopted")
