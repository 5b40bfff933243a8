"""Take what was seen into the ledger. Pure: (ledger, facts) → (ledger, events).

Everything that the ledger did not know is adopted first: jobs in the queue whose work folder is below this run's
`jobs/`, and claimed attempts in the slots' folders. A controller that lost its memory finds its jobs again by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from orchestrator.evidence import Evidence
from orchestrator.executors.base import Accounting, Frozen, JobRow, JobState, Poll
from orchestrator.models import (
    LIVE,
    Attempt,
    Blind,
    Gone,
    Ledger,
    Slot,
    SlotStatus,
    Submission,
    SubmissionState,
    Verdict,
    parse_token,
)
from orchestrator.sightings import find_row, missing_from, never_accepted, sight
from orchestrator.verdicts import judge, made_progress

#: A slot that fails this often in a row without a new checkpoint would go on failing.
FAILURE_BUDGET = 5
#: Ended attempts that stay in the ledger for `status`; all of them stay in the event log.
ATTEMPTS_KEPT = 3

Event = dict[str, Any]


class Facts(Frozen):
    """All that one tick saw. `evidence`: by (slot, attempt). `newest_claims`: by slot, the highest claimed attempt."""

    now: float
    poll: Poll
    history: Accounting | None
    evidence: Mapping[tuple[int, int], Evidence]
    newest_claims: Mapping[int, tuple[int, Evidence]]
    jobs_dir: str
    forget_after_s: float
    submit_grace_s: float

    def job_dir(self, token: str) -> str:
        """The work folder that identifies a submission."""
        return f"{self.jobs_dir}/{token}"


def fold(ledger: Ledger, facts: Facts) -> tuple[Ledger, list[Event]]:
    """The ledger after this look, and what happened in it."""
    events: list[Event] = []
    slots = [_fold_slot(adopt(slot, facts, events), facts, events) for slot in ledger.slots]
    blind = facts.poll.error
    since = (ledger.blind_since or facts.poll.at) if blind else None
    update = {"slots": tuple(slots), "blind_since": since, "blind_error": blind or ""}
    return ledger.model_copy(update=update), events


def adopt(slot: Slot, facts: Facts, events: list[Event]) -> Slot:
    """Add submissions and attempts that others know of and the ledger does not."""
    slot = revive(slot, facts, events)
    known = {s.token for attempt in slot.attempts for s in attempt.submissions}
    found: list[tuple[int, Submission]] = []
    for row in facts.poll.rows:
        token = PurePosixPath(row.work_dir).name
        parsed = parse_token(token)
        alive = row.state is not JobState.ENDED
        here = row.work_dir.rstrip("/") == facts.job_dir(token)
        if parsed and parsed[0] == slot.index and token not in known and here and alive:
            found.append((parsed[1], _adopted(token, row.job_id, _row_time(row, facts.now))))
    claims = [(a.number, facts.evidence[slot.index, a.number]) for a in slot.attempts if a.verdict is None]
    if slot.index in facts.newest_claims:
        claims.append(facts.newest_claims[slot.index])
    for number, evidence in claims:
        claim = evidence.claim
        old = slot.current is not None and number < slot.current.number
        if claim and claim.token and claim.token not in known and not old:
            # Dated by our clock: the node's may be wrong, and the job was surely accepted before this look.
            found.append((number, _adopted(claim.token, claim.job_id, min(claim.at, facts.poll.at - 1.0))))
    for number, submission in found:
        if submission.token not in known:
            known.add(submission.token)
            slot = _with_submission(slot, number, submission)
            events.append({"kind": "adopted", "slot": slot.index, "attempt": number, "token": submission.token})
    return slot


def revive(slot: Slot, facts: Facts, events: list[Event]) -> Slot:
    """Submissions that were given up, and are there after all: in the queue, or by the claim that they won.

    What the job itself said (its exit record, its duplicate's record) is final; the scheduler's word is not: it may run
    an id again.
    """
    attempts = []
    for attempt in slot.attempts:
        evidence = facts.evidence.get((slot.index, attempt.number), Evidence())
        submissions = []
        for submission in attempt.submissions:
            row = find_row(facts.poll.rows, facts.job_dir(submission.token))
            in_queue = row is not None and row.state is not JobState.ENDED and facts.poll.error is None
            if submission.state is SubmissionState.NOT_SUBMITTED:
                claimed = evidence.claim is not None and evidence.claim.token == submission.token
                back = (in_queue and facts.poll.at > submission.intent_at) or claimed
            elif submission.state is SubmissionState.ENDED:
                gone = submission.sighting
                by_scheduler = gone is None or (isinstance(gone, Gone) and not gone.by_job and facts.poll.at > gone.at)
                back = in_queue and by_scheduler
            else:
                back = False
            if back:
                events.append(_event("revived", slot, attempt, token=submission.token))
            again = {"state": SubmissionState.SUBMITTED, "sighting": None}
            submissions.append(submission.model_copy(update=again) if back else submission)
        attempts.append(attempt.model_copy(update={"submissions": tuple(submissions)}))
    return slot.model_copy(update={"attempts": tuple(attempts)})


def _row_time(row: JobRow, now: float) -> float:
    return row.submitted_at or row.started_at or now


def _adopted(token: str, job_id: str, at: float) -> Submission:
    return Submission(token=token, intent_at=at, state=SubmissionState.SUBMITTED, job_id=job_id, note="adopted")


def _with_submission(slot: Slot, number: int, submission: Submission) -> Slot:
    attempts = {attempt.number: attempt for attempt in slot.attempts}
    attempt = attempts.get(number, Attempt(number=number))
    attempts[number] = attempt.model_copy(update={"submissions": (*attempt.submissions, submission)})
    return slot.model_copy(update={"attempts": tuple(attempts[n] for n in sorted(attempts))})


def _fold_slot(slot: Slot, facts: Facts, events: list[Event]) -> Slot:
    attempts = []
    for before in slot.attempts:
        evidence = facts.evidence.get((slot.index, before.number))
        if evidence is None and slot.index in facts.newest_claims:
            number, newest = facts.newest_claims[slot.index]
            evidence = newest if number == before.number else None
        if (before.verdict is not None and not before.live) or evidence is None:
            attempts.append(before)
            continue
        after = _fold_attempt(before, evidence, facts)
        if any(s.state is SubmissionState.UNCERTAIN for s in before.live) and not any(
            s.state is SubmissionState.UNCERTAIN for s in after.live
        ):
            slot = slot.model_copy(update={"why": ""})
        if before.started_at is None and after.started_at is not None:
            events.append(_event("started", slot, after, job_id=_job_id(after), start_step=after.start_step))
            slot = slot.model_copy(update={"jobs": slot.jobs + 1})
        if before.verdict is None and after.verdict is not None:
            step = evidence.progress.step if evidence.progress else None
            reported = [evidence.progress.checkpoint_step] if evidence.progress else []
            saved = max(
                [*reported, *([after.checkpoint_step] if after.checkpoint_step is not None else [])], default=None
            )
            facts_of_end = {"verdict": after.verdict, "cause": after.cause, "step": step, "checkpoint_step": saved}
            events.append(_event("ended", slot, after, job_id=_job_id(after), ended_at=after.ended_at, **facts_of_end))
            slot = _after_end(slot, after, progressed=made_progress(evidence))
        if evidence.progress is not None:
            slot = slot.model_copy(update={"step": evidence.progress.step, "total": evidence.progress.total})
        elif evidence.newest_checkpoint is not None:
            slot = slot.model_copy(update={"step": evidence.newest_checkpoint})
        attempts.append(after)
    open_or_new = [a for a in attempts[:-ATTEMPTS_KEPT] if a.live] + attempts[-ATTEMPTS_KEPT:]
    return slot.model_copy(update={"attempts": tuple(open_or_new)})


def _event(kind: str, slot: Slot, attempt: Attempt, **more: Any) -> Event:
    return {"kind": kind, "slot": slot.index, "attempt": attempt.number, **more}


def _job_id(attempt: Attempt) -> str | None:
    ids = [s.job_id for s in attempt.submissions if s.token == attempt.claimed_by]
    return ids[0] if ids else None


def _fold_attempt(attempt: Attempt, evidence: Evidence, facts: Facts) -> Attempt:
    update: dict[str, Any] = {}
    if evidence.beat != attempt.heartbeat:
        update |= {"heartbeat": evidence.beat, "heartbeat_changed_at": facts.now}
    if evidence.claim is not None:
        update |= {"claimed_by": evidence.claim.token, "started_at": evidence.claim.at}
        update |= {"start_step": evidence.start_step, "checkpoint_step": evidence.newest_checkpoint}
    attempt = attempt.model_copy(update=update)
    submissions = tuple(_fold_submission(s, attempt, evidence, facts) for s in attempt.submissions)
    attempt = attempt.model_copy(update={"submissions": submissions})
    if attempt.verdict is not None:
        return attempt
    if attempt.claimed_by is not None:
        over = [s for s in submissions if s.token == attempt.claimed_by and s.state is SubmissionState.ENDED]
    elif not attempt.live:
        over = [s for s in submissions if s.state is SubmissionState.ENDED]
    else:
        over = []
    if not over:
        return attempt
    gone = over[-1].sighting
    if not isinstance(gone, Gone):
        gone = Gone(proof="it ended", at=facts.now)
    verdict, cause = judge(evidence, gone)
    return attempt.model_copy(update={"verdict": verdict, "cause": cause, "ended_at": gone.at})


def _fold_submission(submission: Submission, attempt: Attempt, evidence: Evidence, facts: Facts) -> Submission:
    if submission.state not in LIVE:
        return submission
    if submission.intent_at > facts.now:  # our clock was set back; a poll must be able to be later than it
        submission = submission.model_copy(update={"intent_at": facts.now - 1.0})
    job_dir = facts.job_dir(submission.token)
    if submission.state is not SubmissionState.SUBMITTED and never_accepted(
        submission, evidence, facts.poll, facts.history, job_dir=job_dir, submit_grace_s=facts.submit_grace_s
    ):
        return submission.model_copy(update={"state": SubmissionState.NOT_SUBMITTED, "sighting": None})
    sighting = sight(
        submission,
        attempt,
        evidence,
        facts.poll,
        facts.history,
        job_dir=job_dir,
        now=facts.now,
        forget_after_s=facts.forget_after_s,
    )
    if sighting is None:
        return submission
    past = facts.history.rows if facts.history is not None else ()
    known = find_row(facts.poll.rows, job_dir) or find_row(past, job_dir)
    update: dict[str, Any] = {"sighting": sighting, "absent_since": None}
    if isinstance(sighting, Gone):
        update["state"] = SubmissionState.ENDED
    elif missing_from(facts.poll, submission, job_dir):
        update["absent_since"] = submission.absent_since or facts.poll.at
    elif isinstance(sighting, Blind):
        update["absent_since"] = submission.absent_since
    if known is not None and not isinstance(sighting, Gone):
        update |= {"state": SubmissionState.SUBMITTED, "job_id": submission.job_id or known.job_id, "note": ""}
    return submission.model_copy(update=update)


def _after_end(slot: Slot, attempt: Attempt, *, progressed: bool) -> Slot:
    """Count the end against the slot, or for it."""
    update: dict[str, Any] = {}
    if attempt.verdict is Verdict.HANDED_OVER:
        update = {"hand_overs": slot.hand_overs + 1, "failures": 0}
    elif attempt.verdict is Verdict.FINISHED:
        update = {"status": SlotStatus.FINISHED, "why": "", "failures": 0}
    elif attempt.verdict is Verdict.DO_NOT_REQUEUE:
        update = {"status": SlotStatus.FAILED, "why": attempt.cause}
    elif progressed:
        update = {"failures": 0}
    elif attempt.verdict in {Verdict.SUPERSEDED, Verdict.PREEMPTED, Verdict.CANCELLED}:
        update = {}
    else:
        failures = slot.failures + 1
        update = {"failures": failures}
        if failures >= FAILURE_BUDGET:
            why = f"{failures} jobs in a row ended without a new checkpoint; the last: {attempt.cause}"
            update |= {"status": SlotStatus.FAILED, "why": why}
    return slot.model_copy(update=update)
