"""What people want to be told: the few changes that the command hook hears of. Pure.

Kinds: `finished`, `failed`, `paused`, `put off` (of a slot), `run finished`, `blind` (the queue has not been seen for
long) and `sighted` (it is seen again). Each is told once, because each is a change of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.decisions.models import Ledger, Slot, SlotStatus

#: An outage shorter than this is an ordinary restart of the scheduler, and nobody's business.
BLIND_LONG_S = 600.0

_OVER = {SlotStatus.FINISHED, SlotStatus.DROPPED, SlotStatus.BEHIND}
_KINDS = {SlotStatus.FINISHED: "finished", SlotStatus.FAILED: "failed", SlotStatus.PAUSED: "paused"}


def is_put_off(slot: Slot) -> bool:
    """Whether its job was refused for good, or could never run, and is tried again each hour; none has run since."""
    return slot.status is SlotStatus.ACTIVE and slot.put_off_since is not None


def _is_finished(slots: Sequence[Slot]) -> bool:
    """Whether one is, and none of the others is to go on."""
    states = {slot.status for slot in slots}
    return SlotStatus.FINISHED in states and states <= _OVER


def _finished_words(slots: Sequence[Slot]) -> str:
    count = sum(slot.status is SlotStatus.FINISHED for slot in slots)
    if count == len(slots):
        return f"all {count} slots are finished" if count > 1 else "its slot is finished"
    are = "slot is" if count == 1 else "slots are"
    return f"{count} {are} finished, and none of the {len(slots)} is left to go on"


def news_of_slots(before: Ledger, after: Ledger, slots: int) -> list[tuple[str, dict[str, Any]]]:
    """What is to be told of the step from `before`, but for the queue: (kind, facts). `slots`: how many are wanted."""
    told: list[tuple[str, dict[str, Any]]] = []
    for old, new in zip(before.slots, after.slots, strict=False):
        if new.status is not old.status and new.status in _KINDS and not new.on_request:
            told.append((_KINDS[new.status], {"slot": new.index, "words": new.why, "step": new.step}))
        if is_put_off(new) and not is_put_off(old):
            told.append(("put off", {"slot": new.index, "words": new.why, "step": new.step}))
    if _is_finished(after.slots[:slots]) and not _is_finished(before.slots[:slots]):
        told.append(("run finished", {"words": _finished_words(after.slots[:slots])}))
    return told


def news_of(before: Ledger, after: Ledger, slots: int, now: float) -> tuple[Ledger, list[tuple[str, dict[str, Any]]]]:
    """`after`, with what has been told noted in it, and the news of the step from `before`."""
    told = news_of_slots(before, after, slots)
    if after.blind_since is not None and not after.blind_told and now - after.blind_since >= BLIND_LONG_S:
        told.append(("blind", {"since": after.blind_since, "words": after.blind_error}))
        after = after.model_copy(update={"blind_told": True})
    elif after.blind_since is None and after.blind_told:
        told.append(("sighted", {"words": "the queue is seen again"}))
        after = after.model_copy(update={"blind_told": False})
    return after, told
