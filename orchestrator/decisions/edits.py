"""Changes to a ledger that are none of `fold`'s: what we are about to do, and what came of it: accepted, unclear, or
refused, and for how long. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.config import RunConfig
from orchestrator.decisions.models import (
    Action,
    Attempt,
    Cancel,
    Ledger,
    Slot,
    SlotStatus,
    Submission,
    SubmissionState,
    Submit,
    Verdict,
)
from orchestrator.decisions.nodes import forgiven
from orchestrator.executors.base import SubmitOutcome, SubmitRefused, Submitted, Uncertain
from orchestrator.jobside import given

#: A slot that goes on does so as if nothing had happened.
GO_ON: dict[str, Any] = {
    "status": SlotStatus.ACTIVE, "why": "", "on_request": False, "not_before": 0.0, "ahead_not_before": 0.0,
    "put_off_since": None, "failures": 0, "node_failures": 0, "stalls": 0, "early_ends": 0,
}  # fmt: skip
#: Of the dates that waits are counted from, those of a submission and of an attempt. `started_at` and `ended_at` are of
#: the node's clock.
_OF_A_SUBMISSION = ("absent_since", "cancelled_at", "stuck_since", "left_since")
_OF_AN_ATTEMPT = ("heartbeat_changed_at", "aborted_at", "asked_to_hand_over_at")
#: Refused submissions that stay in the ledger, for each attempt.
REFUSALS_KEPT = 2


def with_slot(ledger: Ledger, slot: int, **update: Any) -> Ledger:
    """`ledger` with one slot changed."""
    slots = list(ledger.slots)
    slots[slot] = slots[slot].model_copy(update=update)
    return ledger.model_copy(update={"slots": tuple(slots)})


def with_words(ledger: Ledger, words: Mapping[int, str]) -> Ledger:
    """`ledger` with `words`, by slot, as the reason why it waits. What says so already stays the same object."""
    if all(ledger.slots[index].why == why for index, why in words.items()):
        return ledger
    slots = list(ledger.slots)
    for index, why in words.items():
        if slots[index].why != why:
            slots[index] = slots[index].model_copy(update={"why": why})
    return ledger.model_copy(update={"slots": tuple(slots)})


def with_attempt(slot: Slot, number: int, **update: Any) -> Slot:
    """`slot` with one attempt changed (made, where it is new)."""
    attempts = {attempt.number: attempt for attempt in slot.attempts}
    attempts[number] = attempts.get(number, Attempt(number=number)).model_copy(update=update)
    return slot.model_copy(update={"attempts": tuple(attempts[n] for n in sorted(attempts))})


def with_submission(slot: Slot, number: int, token: str, **update: Any) -> Slot:
    """`slot` with one submission changed."""
    attempt = next(a for a in slot.attempts if a.number == number)
    changed = tuple(s.model_copy(update=update) if s.token == token else s for s in attempt.submissions)
    return with_attempt(slot, number, submissions=changed)


def with_intents(ledger: Ledger, actions: Sequence[Action], now: float) -> Ledger:
    """`ledger` with what we are about to do written in, before any of it is done.

    Submissions, because one that is forgotten would be made twice; cancels, because one that is forgotten would look
    like a person's, and pause the slot.
    """
    slots = list(ledger.slots)
    for action in actions:
        slot = slots[action.slot]
        if isinstance(action, Submit):
            slots[action.slot] = _with_intent(slot, action, now)
        elif isinstance(action, Cancel):
            update = {"cancelled_at": now, "cancelled_for": action.why}
            slots[action.slot] = with_submission(slot, action.attempt, action.token, **update)
    return ledger.model_copy(update={"slots": tuple(slots)}) if actions else ledger


def _with_intent(slot: Slot, action: Submit, now: float) -> Slot:
    attempts = {attempt.number: attempt for attempt in slot.attempts}
    before = attempts.get(action.attempt, Attempt(number=action.attempt)).submissions
    refused = [s for s in before if s.state is SubmissionState.NOT_SUBMITTED]
    # A weekend of full quota is thousands of refusals; the last ones say it all.
    before = tuple(s for s in before if s not in refused[:-REFUSALS_KEPT])
    intent = Submission(token=action.token, intent_at=now, after=action.after, exclude=action.exclude)
    slot = slot if action.level is None else slot.model_copy(update={"level": action.level})
    return with_attempt(slot, action.attempt, submissions=(*before, intent), ahead=action.after is not None)


def reactivated(slot: Slot, total: int | None, given: str = "", *, again: bool = False) -> Slot:
    """`start` was typed again: a slot that was paused or given up gets another chance, one that waits need not wait,
    and a finished one goes on where there is more to do: its `total` was raised (None: it is not ours to know), or its
    own program would be `given` something else than when it finished (empty: it is the trainer, or nobody knows), or
    (`again`) in any case. What a person paused or dropped waits for `resume`.
    """
    more = again or _is_raised(slot, total) or _is_given_more(slot, given)
    if (slot.status is SlotStatus.FINISHED and not more) or slot.on_request or slot.status is SlotStatus.DROPPED:
        return slot
    return slot.model_copy(update=GO_ON)


def _is_raised(slot: Slot, total: int | None) -> bool:
    return total is not None and slot.total is not None and total > slot.total


def _is_given_more(slot: Slot, given: str) -> bool:
    before = next((a.given for a in reversed(slot.attempts) if a.verdict is Verdict.FINISHED), "")
    return bool(given and before) and given != before


def with_clock_set_back(ledger: Ledger, now: float, longest_s: float) -> Ledger:
    """`ledger` without dates of our own clock that are later than `now`; itself, if it was not written later. A slot
    waits no longer than `longest_s` from now.

    What a clock that was set back dates into the future happened, for all we know, just now. Left as it is, each wait
    would grow by the whole step, and a job that left the queue stay unproven.
    """
    if ledger.written_at <= now:
        return ledger
    update: dict[str, Any] = _clamped(ledger, ("blind_since", "full_until"), now)
    slots = (
        slot.model_copy(
            update=_clamped(slot, ("not_before", "ahead_not_before"), now + longest_s)
            | {"attempts": tuple(_clamped_attempt(one, now) for one in slot.attempts)}
        )
        for slot in ledger.slots
    )
    return ledger.model_copy(update=update | {"slots": tuple(slots)})


def _clamped_attempt(attempt: Attempt, now: float) -> Attempt:
    submissions = tuple(s.model_copy(update=_clamped(s, _OF_A_SUBMISSION, now)) for s in attempt.submissions)
    return attempt.model_copy(update=_clamped(attempt, _OF_AN_ATTEMPT, now) | {"submissions": submissions})


def _clamped(dated: Ledger | Slot | Attempt | Submission, names: tuple[str, ...], latest: float) -> dict[str, float]:
    dates = {name: getattr(dated, name) for name in names}
    return {name: latest for name, at in dates.items() if at is not None and at > latest}


def started_again(ledger: Ledger, config: RunConfig) -> Ledger:
    """`start` typed once more: slots that were given up or paused get another chance, and so do finished ones that have
    more to do: a larger total, another command or other params. Actors go on in any case: their training may be longer
    now. Errors: as `RunConfig.trained_by`.
    """
    slots = tuple(_started_again(slot, config) for slot in ledger.slots)
    return ledger.model_copy(update={"slots": slots, "nodes": forgiven(ledger.nodes)})


def _started_again(slot: Slot, config: RunConfig) -> Slot:
    if slot.index >= config.slots:
        return reactivated(slot, None)
    if (command := config.command_of(slot.index)) is not None:
        return reactivated(slot, None, given(command, config.settings_of(slot.index)))
    if not config.trains:
        return reactivated(slot, None, again=True)
    return reactivated(slot, config.trained_by(slot.index).total_steps)


#: The user's job limit is reached: so long no more jobs are tried than there were then; afterwards, one more.
QUOTA_WAIT_S = 60.0
#: The scheduler could not be reached, or the like.
TEMPORARY_WAIT_S = 15.0
#: Refused for good, but the run had jobs before: an account, a partition or a limit of before may come back.
AGAIN_S = 3600.0
#: With this end the reason of a slot that is put off, in the refusal's own words.
TRIED_AGAIN = "(tried again, because the run had jobs before)"
#: A queued successor was refused: its slot has a job that runs, and no need of it for long.
AHEAD_REFUSED_WAIT_S = 600.0


def with_outcome(ledger: Ledger, action: Submit, outcome: SubmitOutcome, now: float, others: int = 0) -> Ledger:
    """`ledger` after the scheduler's answer to `action`, whose intent is in it already. `others`: the user's jobs that
    are none of this run.
    """
    if isinstance(outcome, Submitted):
        update: dict[str, Any] = {"state": SubmissionState.SUBMITTED, "job_id": outcome.job_id, "place": outcome.place}
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
    if isinstance(outcome, SubmitRefused) and outcome.kind == "permanent" and action.raised is not None:
        # It may be what we added to the config's request: without that the answer counts.
        again = {"why": outcome.words, "not_before": now + TEMPORARY_WAIT_S}
        of_slot = {**(again if action.after is None else of_slot), "raised": None}
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
    return SubmitRefused(kind="temporary", words="another request came meanwhile") if is_wished else None


def full_words(refusal: str) -> str:
    """Why a slot waits, where the scheduler refused a job with these words."""
    return f"waits until your limits allow another job ({refusal})"


def words_of(outcome: SubmitOutcome) -> str | None:
    """For the history: what was not a plain yes."""
    if isinstance(outcome, Uncertain):
        return f"{SubmissionState.UNCERTAIN}: {outcome.why}"
    return f"{SubmissionState.NOT_SUBMITTED}: {outcome.words}" if isinstance(outcome, SubmitRefused) else None
