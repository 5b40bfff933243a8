"""A run of many experiments at a glance: how many are how, which is the best so far, when all will be done. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from orchestrator.config import RunConfig
from orchestrator.decisions.models import Slot, SlotStatus
from orchestrator.executors.base import View

#: In this order people look at them.
STATES = (
    "running", "handing over", "starting", "stalled", "suspended", "pending", "submitted", "intent", "uncertain",
    "blind", "failed", "paused", "waiting", "behind", "finished", "stopped", "dropped",
)  # fmt: skip
#: In these a job has a place; one that waits in the queue has none yet.
AT_WORK = frozenset({"running", "handing over", "starting", "stalled", "suspended"})
#: So many of the best are told.
BEST = 5


class SlotScore(View):
    """The best value of the metric that one slot has reported, and at which step."""

    slot: int
    name: str
    value: float
    step: int | None


class QueueView(View):
    """`counts`: how many slots are in each state. `best`: by `metric`, the best first. `finish_in_s`: until all are
    done, as far as rates are known, seconds; `rates_known`: of how many slots they are.
    """

    counts: dict[str, int]
    metric: str | None = None
    best: tuple[SlotScore, ...] = ()
    finish_in_s: float | None = None
    rates_known: int = 0


class Work(View):
    """What a slot has behind and before it, in steps. `total`, `rate` (steps a second): None where it is not known.
    `is_over`: nothing more is to come, and it only tells of the others.
    """

    step: int
    total: int | None
    rate: float | None
    is_over: bool = False


def queue_view(
    slots: Sequence[Slot], states: Sequence[str], rates: Sequence[float | None], config: RunConfig, places: int
) -> QueueView:
    """`states`, `rates`: of each slot, as they are shown. `places`: how many jobs run at once."""
    told = Counter(states)
    sign = 1.0 if config.queue.goal == "min" else -1.0
    scores = [
        SlotScore(slot=slot.index, name=config.name_of(slot.index), value=slot.best, step=slot.best_step)
        for slot in slots
        if slot.best is not None
    ]
    work = [work_of(slot, rate) for slot, rate in zip(slots, rates, strict=True)]
    return QueueView(
        counts={state: told[state] for state in (*STATES, *sorted(told.keys() - set(STATES))) if told[state]},
        metric=config.queue.metric,
        best=tuple(sorted(scores, key=lambda score: (sign * score.value, score.slot))[:BEST]),
        finish_in_s=None if config.queue.halving is not None else left_s(work, places),
        rates_known=sum(one.rate is not None and not one.is_over for one in work),
    )


def places_of(states: Sequence[str], max_jobs: int | None, full_at: int | None) -> int:
    """How many jobs run at once: as the config says, else as many as do; never more than the scheduler takes."""
    places = max_jobs or max(1, sum(state in AT_WORK for state in states))
    return places if full_at is None else max(1, min(places, full_at))


def work_of(slot: Slot, rate: float | None) -> Work:
    """By its present rate, else by what its ended jobs came to."""
    if rate is None and slot.worked_s > 0 and slot.step > 0:
        rate = slot.step / slot.worked_s
    return Work(step=slot.step, total=slot.total, rate=rate or None, is_over=slot.status is not SlotStatus.ACTIVE)


def left_s(work: Sequence[Work], places: int) -> float | None:
    """Seconds until all are done on so many places; None where no rate is known. Whoever's rate or length is not known
    is taken for the median of the others. Waits in the queue come on top.
    """
    rates = [one.rate for one in work if one.rate is not None]
    totals = [one.total for one in work if one.total is not None]
    if not rates or not totals or places < 1:
        return None
    usual_rate, usual_total = median(rates), median(totals)
    each = [
        max(0.0, (usual_total if one.total is None else one.total) - one.step) / (one.rate or usual_rate)
        for one in work
        if not one.is_over
    ]
    return max(sum(each) / places, *each) if each else None


def page_of(states: Sequence[str], room: int, page: int) -> tuple[list[int], int]:
    """Which of the slots (their places in `states`) are shown on `page` (from 1), and how many pages there are. Where
    all fit they stand in their own order, else those that do something come first.
    """
    if len(states) <= room:
        return list(range(len(states))), 1
    rank = {state: place for place, state in enumerate(STATES)}
    order = sorted(range(len(states)), key=lambda place: (rank.get(states[place], len(STATES)), place))
    pages = math.ceil(len(order) / room)
    first = (min(page, pages) - 1) * room
    return order[first : first + room], pages
