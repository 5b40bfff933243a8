"""Whose turn it is, where there are more slots than jobs. Pure.

A job that runs is never stopped for another slot. So what is chosen here is who gets the next place that is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.config import RunConfig
from orchestrator.decisions.models import Slot
from orchestrator.sections import QueueSection


@dataclass(frozen=True)
class Turns:
    """`priorities`: by slot, as the config has them. `job_s`: the time in which a job can work, seconds; where slots
    have jobs of different lengths, the shortest: then nobody has several in a row because others' are longer.
    """

    queue: QueueSection = field(default_factory=QueueSection)
    priorities: Mapping[int, int] = field(default_factory=dict)
    job_s: float = 4 * 3600.0

    def priority_of(self, slot: Slot) -> int:
        """As a person changed it, else as the config has it; larger comes first."""
        return slot.priority if slot.priority is not None else self.priorities.get(slot.index, 0)


def turns_of(config: RunConfig) -> Turns:
    """Whose turn it is, as the config says it."""
    priorities = {slot: row["priority"] for slot, row in enumerate(config.experiments or ()) if "priority" in row}
    shortest = min(config.longest_job_s(slot) for slot in range(config.slots))
    return Turns(queue=config.queue, priorities=priorities, job_s=max(1.0, shortest))


def in_turn(slots: Iterable[Slot], turns: Turns) -> list[Slot]:
    """`slots`, the next one first.

    *Fair* counts whole jobs' worth of work: a slot whose job was cut short is not thrown back for minutes, and among
    those that had as much, who has the least left comes first. So nobody starves, and the shortest is not last.
    """
    if turns.queue.order == "in turn":
        return sorted(slots, key=lambda slot: slot.index)
    by_priority = turns.queue.order == "priority"

    def key(slot: Slot) -> tuple[float, ...]:
        first = -turns.priority_of(slot) if by_priority else 0
        return (first, round(slot.worked_s / turns.job_s), -share_done(slot), slot.index)

    return sorted(slots, key=key)


def share_done(slot: Slot) -> float:
    """How much of its training is done, from 0 to 1; 0 where nobody knows."""
    return min(1.0, slot.step / slot.total) if slot.total else 0.0
