"""A clock that was set back: what the ledger dates into the future happened, for all we know, just now. Pure.

Every wait is counted from such a date. Left as it is, a wait would grow by the whole step: a job that left the queue
would stay unproven, and its slot occupied, for a day after a correction by a day.
"""

from __future__ import annotations

from typing import Any

from orchestrator.decisions.models import Attempt, Ledger, Slot, Submission

_OF_A_SUBMISSION = ("absent_since", "cancelled_at", "released_at", "stuck_since", "left_since")
#: `started_at` and `ended_at` are of the node's clock, and no wait is counted from them.
_OF_AN_ATTEMPT = ("heartbeat_changed_at", "aborted_at", "asked_to_hand_over_at")


def with_clock_set_back(ledger: Ledger, now: float) -> Ledger:
    """`ledger` without dates of our own clock that are later than `now`; itself, if it was not written later."""
    if ledger.written_at <= now:
        return ledger
    update: dict[str, Any] = _clamped(ledger, ("blind_since", "full_until"), now)
    return ledger.model_copy(update=update | {"slots": tuple(_slot(slot, now) for slot in ledger.slots)})


def _slot(slot: Slot, now: float) -> Slot:
    return slot.model_copy(update={"attempts": tuple(_attempt(attempt, now) for attempt in slot.attempts)})


def _attempt(attempt: Attempt, now: float) -> Attempt:
    submissions = tuple(s.model_copy(update=_clamped(s, _OF_A_SUBMISSION, now)) for s in attempt.submissions)
    return attempt.model_copy(update=_clamped(attempt, _OF_AN_ATTEMPT, now) | {"submissions": submissions})


def _clamped(dated: Ledger | Attempt | Submission, names: tuple[str, ...], now: float) -> dict[str, float]:
    dates = {name: getattr(dated, name) for name in names}
    return {name: now for name, at in dates.items() if at is not None and at > now}
