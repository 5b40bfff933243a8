"""What the simulated user was told by the command hook: everything once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.decisions.models import Ledger, SlotStatus

if TYPE_CHECKING:
    from controllers import Process
    from watch import Watch

_ENDS = {"finished": SlotStatus.FINISHED, "failed": SlotStatus.FAILED, "paused": SlotStatus.PAUSED}


class NewsWatch:
    """Hears what the hook hears. Numbers of invariants go on from `FailoverWatch`."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.told_of: set[tuple[Any, ...]] = set()
        self.begun: dict[int, int] = {}
        self.active: dict[int, bool] = {}

    def remember(self, ledger: Ledger) -> None:
        """How often each slot has been at work: so often it may fail anew."""
        for slot in ledger.slots:
            is_active = slot.status is SlotStatus.ACTIVE
            if is_active and not self.active.get(slot.index, False):
                self.begun[slot.index] = self.begun.get(slot.index, 0) + 1
            self.active[slot.index] = is_active

    def told(self, process: Process, kind: str, facts: dict[str, Any]) -> None:
        """The hook is called."""
        slot = facts.get("slot")
        if kind == "blind":
            what = facts.get("since")
        elif kind == "run finished":  # again, when experiments were added to a finished run
            slots = len(process.controller.ledger.slots) if process.controller is not None else 0
            what = (slots, sum(self.begun.values()))
        else:
            what = self.begun.get(slot, 0)  # type: ignore[arg-type]
        self.watch.world.timeline.tell(f"the user hears: {kind} {'' if slot is None else slot}")
        if kind != "sighted" and (kind, slot, what) in self.told_of:
            self.watch._fail(19, f"{kind} of slot {slot} is told twice: {facts.get('words')}")
        self.told_of.add((kind, slot, what))

    def finish(self, ledger: Ledger) -> None:
        """Where no controller was lost, everything was told."""
        if self.watch.controllers_lost:
            return
        for slot in ledger.slots:
            kinds = [kind for kind, status in _ENDS.items() if status is slot.status and not slot.on_request]
            if kinds and not any(kind == kinds[0] and index == slot.index for kind, index, _ in self.told_of):
                self.watch._fail(20, f"slot {slot.index} is {slot.status}, and nobody was told")
