"""Whose turn it is, where there are more slots than jobs, and which experiments go on. Pure.

A job that runs is never stopped for another slot. So what is chosen here is who gets the next place that is free.

Successive halving (ASHA, Li et al. 2020, arXiv 1810.05934): an experiment among the best 1/factor of those that have
reached a rung so far may pass it when a place is free; else a new experiment begins. What was decided stands in the
ledger (`Slot.rungs`, `Slot.level`), so a controller that dies decides nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.config import RunConfig
from orchestrator.decisions.edits import with_words
from orchestrator.decisions.models import Ledger, Slot, SlotStatus
from orchestrator.sections import HalvingSection, QueueSection


@dataclass(frozen=True)
class Turns:
    """`priorities`: by slot, as the config has them. `job_s`: how long a job can work; of several, the shortest."""

    queue: QueueSection = field(default_factory=QueueSection)
    priorities: Mapping[int, int] = field(default_factory=dict)
    job_s: float = 4 * 3600.0


def turns_of(config: RunConfig) -> Turns:
    """Whose turn it is, as the config says it."""
    priorities = {slot: row["priority"] for slot, row in enumerate(config.experiments or ()) if "priority" in row}
    shortest = min(config.longest_job_s(slot) for slot in range(config.slots))
    return Turns(queue=config.queue, priorities=priorities, job_s=max(1.0, shortest))


def in_turn(slots: Iterable[Slot], turns: Turns) -> list[Slot]:
    """`slots`, the next one first. *Fair* counts whole jobs' worth of work: a slot whose job was cut short is not
    thrown back for minutes, and among those that had as much, who has the least left comes first.
    """
    if turns.queue.order == "in turn":
        return sorted(slots, key=lambda slot: slot.index)
    by_priority = turns.queue.order == "priority"

    def key(slot: Slot) -> tuple[float, ...]:
        priority = slot.priority if slot.priority is not None else turns.priorities.get(slot.index, 0)
        share_done = min(1.0, slot.step / slot.total) if slot.total else 0.0
        return (-priority if by_priority else 0, round(slot.worked_s / turns.job_s), -share_done, slot.index)

    return sorted(slots, key=key)


def rung_steps(level: int, halving: HalvingSection) -> int:
    """At how many steps rung `level` is."""
    return int(halving.first_steps * halving.factor**level)


def is_at_rung(slot: Slot, queue: QueueSection) -> bool:
    """Whether it has done all the steps that it may do until somebody lets it pass. No rung lies beyond its end. Who
    has not told its metric by then goes on until it does, to the next rung at most.
    """
    if queue.halving is None or slot.status is not SlotStatus.ACTIVE:
        return False
    is_measured = slot.metric is not None or len(slot.rungs) > slot.level
    steps = rung_steps(slot.level if is_measured else slot.level + 1, queue.halving)
    return slot.step >= steps and (slot.total is None or steps < slot.total)


def _measured(slot: Slot, halving: HalvingSection) -> Slot:
    """`slot` with its metric written down at each rung that it has reached."""
    rungs = slot.rungs
    while slot.metric is not None and len(rungs) <= slot.level and slot.step >= rung_steps(len(rungs), halving):
        rungs = (*rungs, slot.metric)
    return slot if rungs is slot.rungs else slot.model_copy(update={"rungs": rungs})


def may_pass(slots: Sequence[Slot], queue: QueueSection) -> list[Slot]:
    """Of the slots that are at a rung, those that are among its best: the highest rung first, there the best first.

    When nobody else is on the way any more, the best of the highest rung goes on alone, without a stop: one comes to
    its end. Who failed, or was put aside, is not in the race.
    """
    if queue.halving is None:
        return []
    found: list[Slot] = []
    for level in range(max((len(slot.rungs) for slot in slots), default=0) - 1, -1, -1):
        there = _ranked(slots, level, queue)
        best = there[: len(there) // queue.halving.factor]
        found += [slot for slot in best if slot.level == level and is_at_rung(slot, queue)]
    if found:
        return found
    in_the_race = [slot for slot in slots if slot.status in {SlotStatus.ACTIVE, SlotStatus.FINISHED}]
    highest = max((len(slot.rungs) for slot in in_the_race), default=0) - 1
    if highest < 0:
        return []
    first = _ranked(in_the_race, highest, queue)[0]
    others = [slot for slot in in_the_race if slot.status is SlotStatus.ACTIVE and slot is not first]
    on_the_way = any(not is_at_rung(slot, queue) or slot.occupied for slot in others)
    return [first] if not on_the_way and first.level == highest and is_at_rung(first, queue) else []


def _ranked(slots: Sequence[Slot], level: int, queue: QueueSection) -> list[Slot]:
    """All that have reached rung `level`, the best first."""
    sign = 1.0 if queue.goal == "min" else -1.0
    there = [slot for slot in slots if len(slot.rungs) > level]
    return sorted(there, key=lambda slot: (sign * slot.rungs[level], slot.index))


def with_metric_of(ledger: Ledger, queue: QueueSection) -> Ledger:
    """`ledger` without what was measured by another metric, goal or rungs, and must not be compared with what comes."""
    by = queue.model_dump_json(include={"metric", "goal", "halving"}) if queue.metric is not None else ""
    if by == ledger.measured_by:
        return ledger
    anew = {"metric": None, "best": None, "best_step": None, "rungs": (), "level": 0}
    slots = tuple(slot.model_copy(update=anew) for slot in ledger.slots)
    return ledger.model_copy(update={"slots": slots, "measured_by": by})


def with_rungs(ledger: Ledger, queue: QueueSection) -> Ledger:
    """`ledger` after a look: who is at work and among the best passes its rung without a stop; who waits at one is told
    why; and when nobody can change the order any more, all that wait are behind for good, but at a rung where none has
    been measured: there they wait for another metric.
    """
    if queue.halving is None:
        return ledger
    slots = [_measured(slot, queue.halving) for slot in ledger.slots]
    for slot in may_pass(slots, queue):
        if slot.occupied:
            slots[slot.index] = slot.model_copy(update={"level": slot.level + 1})
    pass_next = {slot.index for slot in may_pass(slots, queue)}
    active = [slot for slot in slots if slot.status is SlotStatus.ACTIVE]
    waiting = [s for s in active if is_at_rung(s, queue) and not s.occupied and s.index not in pass_next]
    over = len(waiting) == len(active)
    words = {slot.index: _rung_words(slot, slots, queue, queue.halving) for slot in waiting}
    reached = max((len(slot.rungs) for slot in slots), default=0)
    for slot in waiting if over else ():
        if slot.level < reached:
            slots[slot.index] = slot.model_copy(update={"status": SlotStatus.BEHIND})
        else:
            words[slot.index] += ", nor has any other experiment's: set another queue.metric, and type `start`"
    return with_words(ledger.model_copy(update={"slots": tuple(slots)}), words)


def _rung_words(slot: Slot, slots: Sequence[Slot], queue: QueueSection, halving: HalvingSection) -> str:
    """The same for all that wait there: `status` says it once."""
    where = f"rung {slot.level + 1} ({rung_steps(slot.level, halving):,} steps)"
    if len(slot.rungs) <= slot.level:
        steps = rung_steps(slot.level + 1, halving)
        return f'at {where}, and up to {steps:,} steps, its program has reported no "{queue.metric}"'
    of = len(_ranked(slots, slot.level, queue))
    best = of // halving.factor
    who = "none continue yet" if not best else f"the best {best} of {of} continue" if best > 1 else "the best continues"
    return f"waits at {where}: {who}"


def place_words(slot: Slot, slots: Sequence[Slot], queue: QueueSection) -> str:
    """Where it stands among those that have reached the same rung; empty where it has reached none."""
    level = min(slot.level, len(slot.rungs) - 1)
    if queue.halving is None or level < 0:
        return ""
    order = [one.index for one in _ranked(slots, level, queue)]
    place = f"number {order.index(slot.index) + 1} of {len(order)}"
    return f"at rung {level + 1} its {queue.metric} was {slot.rungs[level]:.4g}, {place}"
