"""What a person asks of single slots while the run goes on: add, drop, pause, resume, priority. Pure."""

from __future__ import annotations

from typing import Any, Literal

from orchestrator.decisions.edits import GO_ON
from orchestrator.decisions.models import Ledger, Slot, SlotStatus
from orchestrator.executors.base import Frozen

Kind = Literal["add", "drop", "pause", "resume", "priority"]


class Request(Frozen):
    """`number`: its place in the order of all. `slots`: by number. `experiments`: of `add`, each with its name."""

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


def with_request(ledger: Ledger, request: Request, run_name: str) -> Ledger:
    """`ledger` after one request. It is taken up once: its number stays in the ledger.

    The slots of an `add` are there already (`with_slots`). A slot that is added or goes on may change which are among
    the best of a rung, so those that were behind wait again.
    """
    slots = list(ledger.slots)
    if request.kind in {"add", "resume"}:
        slots = [slot.model_copy(update=GO_ON) if slot.status is SlotStatus.BEHIND else slot for slot in slots]
    for index in request.slots:
        if index < len(slots):
            slots[index] = _asked(slots[index], request, run_name)
    return ledger.model_copy(update={"slots": tuple(slots), "requests": request.number})


def events_of(request: Request) -> list[dict[str, Any]]:
    """What the history says of it: a line for each slot."""
    told = {"kind": "requested", "what": request.kind, "number": request.number}
    if request.kind == "add":
        return [{**told, "value": ", ".join(row["name"] for row in request.experiments)}]
    return [{**told, "slot": slot, "value": request.priority} for slot in request.slots]


def _asked(slot: Slot, request: Request, run_name: str) -> Slot:
    resume = f"`orchestrator resume {slot.index} --run {run_name}` goes on with it"
    over = slot.status is SlotStatus.FINISHED
    match request.kind:
        case "priority":
            return slot.model_copy(update={"priority": request.priority})
        case "drop" if not over:
            why = f"it was dropped; {resume}"
            return slot.model_copy(update={"status": SlotStatus.DROPPED, "why": why, "on_request": False})
        case "pause" if not over and slot.status is not SlotStatus.DROPPED:
            why = f"it was paused; {resume}"
            return slot.model_copy(update={"status": SlotStatus.PAUSED, "why": why, "on_request": True})
        case "resume" if not over:
            return slot.model_copy(update=GO_ON)
        case _:
            return slot
