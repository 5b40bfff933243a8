"""Changes to a ledger that are none of `fold`'s: what we are about to do, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.config import RunConfig
from orchestrator.decisions.actions import Action, Cancel, Release, Submit
from orchestrator.decisions.models import Attempt, Ledger, Slot, SlotStatus, Submission, SubmissionState, Verdict
from orchestrator.decisions.nodes import forgiven
from orchestrator.given import given

#: A slot that goes on does so as if nothing had happened.
GO_ON: dict[str, Any] = {
    "status": SlotStatus.ACTIVE, "why": "", "on_request": False, "not_before": 0.0, "ahead_not_before": 0.0,
    "put_off_since": None, "failures": 0, "node_failures": 0, "stalls": 0, "early_ends": 0,
}  # fmt: skip
#: Of the dates that waits are counted from, those of a submission and of an attempt. `started_at` and `ended_at` are of
#: the node's clock.
_OF_A_SUBMISSION = ("absent_since", "cancelled_at", "released_at", "stuck_since", "left_since")
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
    like a person's, and pause the slot; releases, because each submission has only one.
    """
    slots = list(ledger.slots)
    for action in actions:
        slot = slots[action.slot]
        if isinstance(action, Submit):
            slots[action.slot] = _with_intent(slot, action, now)
        elif isinstance(action, Cancel):
            update = {"cancelled_at": now, "cancelled_for": action.why}
            slots[action.slot] = with_submission(slot, action.attempt, action.token, **update)
        elif isinstance(action, Release):
            slots[action.slot] = with_submission(slot, action.attempt, action.token, released_at=now)
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


def with_clock_set_back(ledger: Ledger, now: float) -> Ledger:
    """`ledger` without dates of our own clock that are later than `now`; itself, if it was not written later.

    What a clock that was set back dates into the future happened, for all we know, just now. Left as it is, each wait
    would grow by the whole step, and a job that left the queue stay unproven.
    """
    if ledger.written_at <= now:
        return ledger
    update: dict[str, Any] = _clamped(ledger, ("blind_since", "full_until"), now)
    slots = (
        slot.model_copy(update={"attempts": tuple(_clamped_attempt(one, now) for one in slot.attempts)})
        for slot in ledger.slots
    )
    return ledger.model_copy(update=update | {"slots": tuple(slots)})


def _clamped_attempt(attempt: Attempt, now: float) -> Attempt:
    submissions = tuple(s.model_copy(update=_clamped(s, _OF_A_SUBMISSION, now)) for s in attempt.submissions)
    return attempt.model_copy(update=_clamped(attempt, _OF_AN_ATTEMPT, now) | {"submissions": submissions})


def _clamped(dated: Ledger | Attempt | Submission, names: tuple[str, ...], now: float) -> dict[str, float]:
    dates = {name: getattr(dated, name) for name in names}
    return {name: now for name, at in dates.items() if at is not None and at > now}


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
