"""Changes to a ledger that are none of `fold`'s: what we are about to do, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

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
from orchestrator.executors.base import SubmitOutcome, SubmitRefused, Submitted, Uncertain
from orchestrator.jobside import given

Dated = TypeVar("Dated", Ledger, Slot, Attempt, Submission)
#: A slot that goes on does so as if nothing had happened.
GO_ON: dict[str, Any] = {
    "status": SlotStatus.ACTIVE, "why": "", "on_request": False, "not_before": 0.0, "ahead_not_before": 0.0,
    "put_off_since": None, "failures": 0, "node_failures": 0, "stalls": 0, "early_ends": 0,
}  # fmt: skip
#: The dates of our clock that waits are counted from.
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
    """`ledger` with `words`, by slot, as the reason why it waits. A slot that says so already stays the same object."""
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
    """`ledger` with what we are about to do, before it is done: a cancel that is forgotten looks like a person's."""
    slots = list(ledger.slots)
    for action in actions:
        slot = slots[action.slot]
        if isinstance(action, Submit):
            slots[action.slot] = _with_intent(slot, action, now)
        elif isinstance(action, Cancel):
            update = {"cancelled_at": now, "cancelled_for": action.why}
            slots[action.slot] = with_submission(slot, action.attempt, action.token, **update)
    return ledger.model_copy(update={"slots": tuple(slots)})


def _with_intent(slot: Slot, action: Submit, now: float) -> Slot:
    before = next((attempt.submissions for attempt in slot.attempts if attempt.number == action.attempt), ())
    refused = [s for s in before if s.state is SubmissionState.NOT_SUBMITTED]
    # A weekend of full quota is thousands of refusals; the last ones say it all.
    before = tuple(s for s in before if s not in refused[:-REFUSALS_KEPT])
    intent = Submission(token=action.token, intent_at=now, after=action.after, exclude=action.exclude)
    slot = slot if action.level is None else slot.model_copy(update={"level": action.level})
    return with_attempt(slot, action.attempt, submissions=(*before, intent), ahead=action.after is not None)


def with_clock_set_back(ledger: Ledger, now: float, longest_s: float) -> Ledger:
    """`ledger` without dates of our own clock that are later than `now`; itself, if it was not written later. A slot
    waits no longer than `longest_s` from now.

    What a clock that was set back dates into the future happened, for all we know, just now. Left as it is, each wait
    would grow by the whole step, and a job that left the queue stay unproven.
    """
    if ledger.written_at <= now:
        return ledger
    slots = []
    for slot in ledger.slots:
        attempts = []
        for attempt in slot.attempts:
            submissions = tuple(_clamped(one, _OF_A_SUBMISSION, now) for one in attempt.submissions)
            attempts.append(_clamped(attempt, _OF_AN_ATTEMPT, now, submissions=submissions))
        slots.append(_clamped(slot, ("not_before", "ahead_not_before"), now + longest_s, attempts=tuple(attempts)))
    return _clamped(ledger, ("blind_since", "full_until"), now, slots=tuple(slots))


def _clamped(dated: Dated, names: tuple[str, ...], latest: float, **update: Any) -> Dated:
    dates = {name: getattr(dated, name) for name in names}
    late = {name: latest for name, at in dates.items() if at is not None and at > latest}
    return dated.model_copy(update=late | update)


def started_again(ledger: Ledger, config: RunConfig) -> Ledger:
    """`start` typed once more: slots that were given up or paused get another chance, those that wait need not, and
    finished ones go on that have more to do: a larger total, another command or other params. What a person paused or
    dropped waits for `resume`. Errors: as `RunConfig.trained_by`.
    """
    slots = list(ledger.slots)
    for slot in ledger.slots:
        has_more = _has_more(slot, config) if slot.index < config.slots else False
        is_over = slot.status is SlotStatus.DROPPED or (slot.status is SlotStatus.FINISHED and not has_more)
        if not is_over and not slot.on_request:
            slots[slot.index] = slot.model_copy(update=GO_ON)
    return ledger.model_copy(update={"slots": tuple(slots), "nodes": ()})


def _has_more(slot: Slot, config: RunConfig) -> bool:
    """Whether a finished slot has more to do than when it finished, as far as anybody knows."""
    if (command := config.command_of(slot.index)) is not None:
        before = next((one.given for one in reversed(slot.attempts) if one.verdict is Verdict.FINISHED), "")
        return before not in {"", given(command, config.settings_of(slot.index))}
    if not config.trains:
        return True  # actors: their training may be longer now
    total = config.trained_by(slot.index).total_steps
    return slot.total is not None and total > slot.total


#: The user's job limit is reached: so long no more jobs are tried than there were then; afterwards, one more.
QUOTA_WAIT_S = 60.0
#: The scheduler could not be reached, or the like.
TEMPORARY_WAIT_S = 15.0
#: Refused for good, but the run had jobs before: an account, a partition or a limit of before may come back.
AGAIN_S = 3600.0
#: The end of the reason of a slot that is put off.
TRIED_AGAIN = "(tried again, because the run had jobs before)"
#: After a refusal, a decline or an end of a queued successor: the current job has no need of it, and asking again costs
#: the scheduler as much as a real submission.
AHEAD_WAIT_S = 600.0


def with_outcome(ledger: Ledger, action: Submit, outcome: SubmitOutcome, now: float, others: int = 0) -> Ledger:
    """`ledger` after the scheduler's answer to `action`. `others`: the user's jobs that are none of this run."""
    slot, refused = ledger.slots[action.slot], outcome.kind if isinstance(outcome, SubmitRefused) else None
    if isinstance(outcome, Submitted):
        update: dict[str, Any] = {"state": SubmissionState.SUBMITTED, "job_id": outcome.job_id, "place": outcome.place}
        of_slot: dict[str, Any] = {"why": "", "not_before": 0.0}
    elif isinstance(outcome, Uncertain):
        update = {"state": SubmissionState.UNCERTAIN, "note": outcome.why}
        of_slot = {"why": f"it is not clear whether the last submission was accepted: {outcome.why}"}
    else:
        update = {"state": SubmissionState.NOT_SUBMITTED, "note": outcome.words}
        of_slot = {"why": outcome.words, "not_before": now + TEMPORARY_WAIT_S}
        if refused == "quota":
            of_slot = {"why": full_words(outcome.words), "not_before": 0.0}
        elif refused == "permanent" and not action.exclude and action.raised is None:
            of_slot = after_refusal(outcome.words, now, had_jobs=ledger.had_jobs, since=slot.put_off_since)
    if action.after is not None:  # the slot has a job that runs: nothing of this is its affair
        of_slot = {"ahead_not_before": now + AHEAD_WAIT_S} if refused else {}
    # It may be what we added to the config's request, or our own exclusions that leave no node: without them the answer
    # counts.
    if refused == "permanent" and action.exclude:
        ledger = ledger.model_copy(update={"nodes": ()})
    if refused == "permanent" and action.raised is not None:
        of_slot["raised"] = None
    slot = with_submission(slot, action.attempt, action.token, **update)
    ledger = with_slot(ledger, action.slot, attempts=slot.attempts, **of_slot)
    if action.after is not None and refused == "quota":
        # One limit counts for all slots: each would ask in vain.
        wait = {"ahead_not_before": now + AHEAD_WAIT_S}
        ledger = ledger.model_copy(update={"slots": tuple(one.model_copy(update=wait) for one in ledger.slots)})
    # What the answer says of a limit on the user's jobs that nobody told us.
    live = [submission for one in ledger.slots for attempt in one.attempts for submission in attempt.live]
    jobs = others + sum(submission.state is not SubmissionState.INTENT for submission in live)
    if isinstance(outcome, SubmitRefused) and refused == "quota" and action.after is None:
        limit = {"full_at": jobs, "full_until": now + QUOTA_WAIT_S, "full_words": outcome.words}
        return ledger.model_copy(update=limit)
    if isinstance(outcome, Submitted) and ledger.full_at is not None and jobs > ledger.full_at:
        return ledger.model_copy(update={"full_at": None, "full_until": 0.0, "full_words": ""})
    return ledger


def after_refusal(words: str, now: float, *, had_jobs: bool, since: float | None = None) -> dict[str, Any]:
    """What a slot is to be after a refusal for good, by sbatch or by a reason to wait that never passes: over, unless
    its run had jobs before. `since`: from when on it is put off already, by another refusal.
    """
    if not had_jobs:
        return {"status": SlotStatus.FAILED, "why": words}
    why = f"{words} {TRIED_AGAIN}"
    return {"why": why, "not_before": now + AGAIN_S, "put_off_since": now if since is None else since}


def put_off_by(last: SubmitOutcome | None, *, is_wished: bool) -> SubmitRefused | None:
    """Why the next job of this tick is not even tried, after the answer `last` to the one before; None: it is. A limit
    counts for all, and so does a scheduler that does not answer: each try would take as long. And a wish for something
    else (`is_wished`), such as a stop, does not wait for a hundred submissions.
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
