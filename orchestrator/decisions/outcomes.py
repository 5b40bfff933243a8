"""What came of a submission, taken into the ledger: accepted, unclear, or refused, and for how long. Pure."""

from __future__ import annotations

from typing import Any

from orchestrator.decisions.actions import Submit
from orchestrator.decisions.edits import with_slot, with_submission
from orchestrator.decisions.models import Ledger, SlotStatus, SubmissionState
from orchestrator.decisions.nodes import forgiven
from orchestrator.executors.base import SubmitOutcome, SubmitRefused, Submitted, Uncertain

#: The user's job limit is reached: so long no more jobs are tried than there were then; afterwards, one more.
QUOTA_WAIT_S = 60.0
#: The scheduler could not be reached, or the like.
TEMPORARY_WAIT_S = 15.0
#: Refused for good, but the run had jobs before: an account, a partition or a limit of before may come back.
AGAIN_S = 3600.0
#: With this end the reason of a slot that is put off, in the refusal's own words.
TRIED_AGAIN = "(the run had jobs before: it is tried again)"
#: A queued successor was refused: its slot has a job that runs, and no need of it for long.
AHEAD_REFUSED_WAIT_S = 600.0


def with_outcome(ledger: Ledger, action: Submit, outcome: SubmitOutcome, now: float, others: int = 0) -> Ledger:
    """`ledger` after the scheduler's answer to `action`, whose intent is in it already. `others`: the user's jobs that
    are none of this run.
    """
    if isinstance(outcome, Submitted):
        update: dict[str, Any] = {"state": SubmissionState.SUBMITTED, "job_id": outcome.job_id}
    elif isinstance(outcome, Uncertain):
        update = {"state": SubmissionState.UNCERTAIN, "note": outcome.why}
    else:
        update = {"state": SubmissionState.NOT_SUBMITTED, "note": outcome.words}
    since = ledger.slots[action.slot].put_off_since
    of_slot = _of_the_slot(outcome, now, had_jobs=ledger.had_jobs, since=since)
    if action.after is not None:  # the slot has a job that runs: nothing of this is its affair
        of_slot = {"ahead_not_before": now + AHEAD_REFUSED_WAIT_S} if isinstance(outcome, SubmitRefused) else {}
    if isinstance(outcome, SubmitRefused) and outcome.kind == "permanent" and action.exclude:
        # It may be our own exclusions that leave no node: without them the answer counts.
        ledger = ledger.model_copy(update={"nodes": forgiven(ledger.nodes)})
        if action.after is None:
            of_slot = {"why": outcome.words, "not_before": now + TEMPORARY_WAIT_S}
    slot = with_submission(ledger.slots[action.slot], action.attempt, action.token, **update)
    ledger = with_slot(ledger, action.slot, attempts=slot.attempts, **of_slot)
    if action.after is not None and isinstance(outcome, SubmitRefused) and outcome.kind == "quota":
        # One limit counts for all slots: each would ask in vain.
        wait = {"ahead_not_before": now + AHEAD_REFUSED_WAIT_S}
        ledger = ledger.model_copy(update={"slots": tuple(one.model_copy(update=wait) for one in ledger.slots)})
    return _with_the_limit(ledger, action, outcome, now, others)


def _with_the_limit(ledger: Ledger, action: Submit, outcome: SubmitOutcome, now: float, others: int) -> Ledger:
    """What the answer says of a limit on the user's jobs that nobody told us."""
    jobs = others + sum(
        submission.state is not SubmissionState.INTENT
        for slot in ledger.slots
        for attempt in slot.attempts
        for submission in attempt.live
    )
    if isinstance(outcome, SubmitRefused) and outcome.kind == "quota" and action.after is None:
        return ledger.model_copy(
            update={"full_at": jobs, "full_until": now + QUOTA_WAIT_S, "full_words": outcome.words}
        )
    if isinstance(outcome, Submitted) and ledger.full_at is not None and jobs > ledger.full_at:
        return ledger.model_copy(update={"full_at": None, "full_until": 0.0, "full_words": ""})
    return ledger


def _of_the_slot(outcome: SubmitOutcome, now: float, *, had_jobs: bool, since: float | None) -> dict[str, Any]:
    if isinstance(outcome, Submitted):
        return {"why": "", "not_before": 0.0}
    if isinstance(outcome, Uncertain):
        return {"why": f"it is not clear whether the last submission was accepted: {outcome.why}"}
    if outcome.kind == "permanent":
        return after_refusal(outcome.words, now, had_jobs=had_jobs, since=since)
    if outcome.kind == "quota":
        return {"why": full_words(outcome.words), "not_before": 0.0}
    return {"why": outcome.words, "not_before": now + TEMPORARY_WAIT_S}


def after_refusal(words: str, now: float, *, had_jobs: bool, since: float | None = None) -> dict[str, Any]:
    """What a slot is to be after a refusal for good, by sbatch or by a reason to wait that never passes: over, unless
    its run had jobs before. `since`: from when on it is put off already, by another refusal.
    """
    if not had_jobs:
        return {"status": SlotStatus.FAILED, "why": words}
    why = f"{words} {TRIED_AGAIN}"
    return {"why": why, "not_before": now + AGAIN_S, "put_off_since": now if since is None else since}


def put_off_by(last: SubmitOutcome | None, *, is_wished: bool) -> SubmitRefused | None:
    """Why the next job of this tick is not even tried, after the answer `last` to the one before; None: it is.

    One limit counts for all, and so does a scheduler that does not answer: each try would take as long. An answer that
    is only unclear came at once. And a wish for something else (`is_wished`), such as a stop, does not wait for
    a hundred submissions.
    """
    if isinstance(last, SubmitRefused) and last.kind == "quota":
        return last
    if isinstance(last, Uncertain) and last.silent:
        return SubmitRefused(kind="temporary", words=last.why)
    return SubmitRefused(kind="temporary", words="something else was wished for meanwhile") if is_wished else None


def full_words(refusal: str) -> str:
    """Why a slot waits, where the scheduler refused a job with these words."""
    return f"waits until your limits have room for another job ({refusal})"


def words_of(outcome: SubmitOutcome) -> str | None:
    """For the history: what was not a plain yes."""
    if isinstance(outcome, Uncertain):
        return f"{SubmissionState.UNCERTAIN}: {outcome.why}"
    return f"{SubmissionState.NOT_SUBMITTED}: {outcome.words}" if isinstance(outcome, SubmitRefused) else None
