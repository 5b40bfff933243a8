"""A run's history, as far as it can be shown: what a crash or somebody else left in its files is passed over."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from orchestrator.run.history import read_events
from orchestrator.run.rundir import RunDir

Event = Mapping[str, Any]

#: Times and steps of a run are smaller; sums of larger ones may leave the finite numbers.
MOST = 1e15


class RunEvents:
    """`all` events, oldest first, and by slot."""

    def __init__(self, events: Sequence[Event], by_slot: Mapping[int, Sequence[Event]]) -> None:
        self.all, self._by_slot = events, by_slot

    def of(self, slot: int) -> Sequence[Event]:
        """Of one slot."""
        return self._by_slot.get(slot, ())


def events_of(run_dir: RunDir) -> RunEvents:
    """Errors: OSError."""
    events = [event for event in read_events(run_dir) if isinstance(event, dict) and _can_be_told(event)]
    by_slot: dict[int, list[Event]] = {}
    for event in events:
        slot = event.get("slot")
        if isinstance(slot, int) and all(name in event for name in ("at", "kind")):
            by_slot.setdefault(slot, []).append({"attempt": None, "token": "", **event})
    return RunEvents(events, by_slot)


def _can_be_told(event: Event) -> bool:
    numbers = [value for value in event.values() if isinstance(value, int | float)]
    return isinstance(event.get("at"), int | float) and all(abs(number) < MOST for number in numbers)


def signature_of_events(run_dir: RunDir) -> Hashable:
    """Changes when events come."""
    files = sorted(run_dir.path.glob("events-*.jsonl"))
    return tuple((path.name, path.stat().st_size) for path in files if path.exists())
