"""When a slot's training will be done, as far as that can be said, and all of a run's experiments at a glance. Pure.

Only what is known is counted: the steps that are left at the present rate, and for each further job that they need the
wait that this slot has had between its last jobs. Where no wait is known yet the forecast says that it leaves them out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from orchestrator.config import RunConfig
from orchestrator.decisions.models import Attempt, Slot, SlotStatus, Verdict
from orchestrator.decisions.verdicts import ASKED_TO
from orchestrator.screens.runview import STATES, Forecast, QueueView, SlotScore

#: In these a job has a place; one that waits in the queue has none yet.
AT_WORK = frozenset({"running", "handing over", "starting", "stalled", "suspended"})
#: So many of the best are told.
BEST = 5


class Work(NamedTuple):
    """A slot's steps behind and before it. `total`, `rate` (steps a second): None where it is not known. `is_over`:
    nothing more is to come, and it only tells of the others.
    """

    step: int
    total: int | None
    rate: float | None
    is_over: bool = False


def queue_view(
    slots: Sequence[Slot], states: Sequence[str], rates: Sequence[float | None], config: RunConfig, places: int
) -> QueueView:
    """`states`, `rates`: of each slot, as they are shown. `places`: how many jobs run at once."""
    counts = Counter(states)
    sign = 1.0 if config.queue.goal == "min" else -1.0
    scores = [
        SlotScore(slot=slot.index, name=config.name_of(slot.index), value=slot.best, step=slot.best_step)
        for slot in slots
        if slot.best is not None
    ]
    work = [_work_of(slot, rate) for slot, rate in zip(slots, rates, strict=True)]
    return QueueView(
        counts={state: counts[state] for state in (*STATES, *sorted(counts.keys() - set(STATES))) if counts[state]},
        metric=config.queue.metric,
        best=tuple(sorted(scores, key=lambda score: (sign * score.value, score.slot))[:BEST]),
        finish_in_s=None if config.queue.halving is not None else left_s(work, places),
        rates_known=sum(one.rate is not None and not one.is_over for one in work),
    )


def places_of(states: Sequence[str], max_jobs: int | None, full_at: int | None) -> int:
    """How many jobs run at once: as the config says, else as many as do; never more than the scheduler takes."""
    places = max_jobs or max(1, sum(state in AT_WORK for state in states))
    return places if full_at is None else max(1, min(places, full_at))


def _work_of(slot: Slot, rate: float | None) -> Work:
    """By its present rate, else by what its ended jobs came to."""
    if rate is None and slot.worked_s > 0 and slot.step > 0:
        rate = slot.step / slot.worked_s
    return Work(slot.step, slot.total, rate or None, slot.status is not SlotStatus.ACTIVE)


def left_s(work: Sequence[Work], places: int) -> float | None:
    """Seconds until all are done on so many places; None where no rate is known. A slot of unknown rate or length is
    taken for the median of the others. Waits in the queue come on top.
    """
    rates = [one.rate for one in work if one.rate is not None]
    totals = [one.total for one in work if one.total is not None]
    if not rates or not totals:
        return None
    usual_rate, usual_total = median(rates), median(totals)
    each = [
        max(0.0, (usual_total if one.total is None else one.total) - one.step) / (one.rate or usual_rate)
        for one in work
        if not one.is_over
    ]
    return max(sum(each) / places, *each) if each else None


def forecast(
    steps_left: int, steps_per_s: float, left_in_job_s: float | None, job_s: float, waits_s: Sequence[float]
) -> Forecast | None:
    """Args: `left_in_job_s`: training time left in the present job (None: it has no end). `job_s`: training time of a
    whole job. `waits_s`: seconds between the slot's last jobs. None where the rate says nothing.
    """
    if steps_per_s <= 0 or steps_left < 0:
        return None
    training_s = steps_left / steps_per_s
    rest_s = training_s - max(0.0, left_in_job_s) if left_in_job_s is not None else 0.0
    if rest_s <= 0:
        return Forecast(finish_in_s=training_s, more_jobs=0, waits_included=True)
    more = math.ceil(rest_s / max(job_s, 1.0))
    wait_s = sum(waits_s) / len(waits_s) if waits_s else 0.0
    return Forecast(finish_in_s=training_s + more * wait_s, more_jobs=more, waits_included=bool(waits_s))


def waits_between(attempts: Sequence[Attempt]) -> list[float]:
    """Seconds from the end of each attempt to the beginning of the next, where both are known. After an end that a
    person wished nobody waits for the next job.
    """
    return [
        max(0.0, after.started_at - before.ended_at)
        for before, after in pairwise(attempts)
        if before.ended_at is not None and after.started_at is not None
        if before.asked != ASKED_TO and before.verdict is not Verdict.CANCELLED
    ]
