"""What people wish for a whole run, what they ask of single slots while it goes on, and what they are told. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from orchestrator.decisions.edits import GO_ON
from orchestrator.decisions.models import Ledger, Slot, SlotStatus
from orchestrator.executors.base import Frozen

#: Who wished the end of a run whose time is over: the command that set the time.
TIME_OVER = "start --for"


class Control(Frozen):
    """A wish that every tick honours: `run`, `stop` (hand over first) or `stop-now`. The highest number counts.
    `until`: a `run` that `start --for` bounds; the first tick from then on (unix seconds) turns it into a `stop`.
    """

    number: int = 0
    wish: Literal["run", "stop", "stop-now"] = "run"
    at: float = 0.0
    by: str = ""
    grace_s: float = 0.0
    until: float | None = None

    def due(self, now: float, grace_s: float) -> Control:
        """What counts at `now`: the `stop` with `grace_s` that a wish becomes when its time is over, else this one."""
        if self.until is None or now < self.until:
            return self
        return Control(number=self.number + 1, wish="stop", at=now, by=TIME_OVER, grace_s=grace_s)


Kind = Literal["add", "drop", "pause", "resume", "priority"]


class Request(Frozen):
    """`number`: its place in the order of all. `experiments`: of `add`, each with its name."""

    number: int
    at: float
    kind: Kind
    slots: tuple[int, ...] = ()
    priority: int | None = None
    experiments: tuple[dict[str, Any], ...] = ()


def with_slots(ledger: Ledger, count: int) -> Ledger:
    """`ledger` with at least `count` slots."""
    new = tuple(Slot(index=index) for index in range(len(ledger.slots), count))
    return ledger.model_copy(update={"slots": (*ledger.slots, *new)}) if new else ledger


def with_request(ledger: Ledger, request: Request) -> Ledger:
    """`ledger` after one request. The slots of an `add` are there already (`with_slots`). A slot that is added or goes
    on may change which are among the best of a rung, so those that were behind wait again.
    """
    slots = list(ledger.slots)
    if request.kind in {"add", "resume"}:
        slots = [slot.model_copy(update=GO_ON) if slot.status is SlotStatus.BEHIND else slot for slot in slots]
    for index in request.slots:
        if index < len(slots):
            slots[index] = slots[index].model_copy(update=_asked(slots[index], request))
    return ledger.model_copy(update={"slots": tuple(slots), "requests": request.number})


def events_of(request: Request) -> list[dict[str, Any]]:
    """What the history says of it: a line for each slot."""
    told = {"kind": "requested", "what": request.kind, "number": request.number}
    if request.kind == "add":
        return [{**told, "value": ", ".join(row["name"] for row in request.experiments)}]
    return [{**told, "slot": slot, "value": request.priority} for slot in request.slots]


def _asked(slot: Slot, request: Request) -> dict[str, Any]:
    if request.kind == "priority":
        return {"priority": request.priority}
    if slot.status is SlotStatus.FINISHED:
        return {}
    if request.kind == "drop":
        return {"status": SlotStatus.DROPPED, "why": "it was dropped", "on_request": False}
    if request.kind == "pause" and slot.status is not SlotStatus.DROPPED:
        return {"status": SlotStatus.PAUSED, "why": "it was paused", "on_request": True}
    return GO_ON if request.kind == "resume" else {}


#: An outage shorter than this is an ordinary restart of the scheduler, and nobody's business.
BLIND_LONG_S = 600.0

_KINDS = {SlotStatus.FINISHED: "finished", SlotStatus.FAILED: "failed", SlotStatus.PAUSED: "paused"}


def is_put_off(slot: Slot) -> bool:
    """Whether its job was refused for good, or could never run, and is tried again each hour; none has run since."""
    return slot.status is SlotStatus.ACTIVE and slot.put_off_since is not None


def _finished_words(slots: Sequence[Slot]) -> str:
    """That some are finished, and none of the others is to go on; empty where it is not so."""
    count = sum(slot.status is SlotStatus.FINISHED for slot in slots)
    over = {SlotStatus.FINISHED, SlotStatus.DROPPED, SlotStatus.BEHIND}
    if not count or not all(slot.status in over for slot in slots):
        return ""
    if count == len(slots):
        return f"all {count} slots are finished" if count > 1 else "its slot is finished"
    are = "slot is" if count == 1 else "slots are"
    return f"{count} {are} finished, and none of the {len(slots)} can continue"


def news_of_slots(before: Ledger, after: Ledger, slots: int) -> list[tuple[str, dict[str, Any]]]:
    """What the hook hears of the step from `before`, but for the queue: (kind, facts). `slots`: how many are wanted."""
    told: list[tuple[str, dict[str, Any]]] = []
    for old, new in zip(before.slots, after.slots, strict=False):
        if new.status is not old.status and new.status in _KINDS and not new.on_request:
            told.append((_KINDS[new.status], {"slot": new.index, "words": new.why, "step": new.step}))
        if is_put_off(new) and not is_put_off(old):
            told.append(("put off", {"slot": new.index, "words": new.why, "step": new.step}))
    words = _finished_words(after.slots[:slots])
    if words and not _finished_words(before.slots[:slots]):
        told.append(("run finished", {"words": words}))
    return told


def news_of(before: Ledger, after: Ledger, slots: int, now: float) -> tuple[Ledger, list[tuple[str, dict[str, Any]]]]:
    """`after`, with what has been told noted in it, and the news of the step from `before`."""
    told = news_of_slots(before, after, slots)
    if after.blind_since is not None and not after.blind_told and now - after.blind_since >= BLIND_LONG_S:
        told.append(("blind", {"since": after.blind_since, "words": after.blind_error}))
        after = after.model_copy(update={"blind_told": True})
    elif after.blind_since is None and after.blind_told:
        told.append(("sighted", {"words": "the queue answers again"}))
        after = after.model_copy(update={"blind_told": False})
    return after, told
