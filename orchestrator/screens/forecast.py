"""When a slot's training will be done, the experiments of a run at a glance, and what steps cost. Pure.

Only what is known is counted: the steps that are left at the present rate, and for each further job that they need the
wait that this slot has had between its last jobs. Where no wait is known yet the forecast says that it leaves them out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from anchorleg.words import counted
from orchestrator.config import RunConfig
from orchestrator.decisions.models import Attempt, Slot, Verdict
from orchestrator.decisions.verdicts import ASKED_TO
from orchestrator.executors.base import Frozen
from orchestrator.screens.cells import number, span
from orchestrator.screens.runview import STATES, Forecast, QueueView, RunView, SlotScore

MANY_STEPS = 1_000_000


def queue_view(slots: Sequence[Slot], states: Sequence[str], config: RunConfig) -> QueueView | None:
    """`states`: of each slot, as they are shown. None where there are no experiments."""
    if config.experiments is None:
        return None
    counts = Counter(states)
    sign = 1.0 if config.queue.goal == "min" else -1.0
    scores = [
        SlotScore(slot=slot.index, name=config.name_of(slot.index), value=slot.best, step=slot.best_step)
        for slot in slots
        if slot.best is not None
    ]
    return QueueView(
        counts={state: counts[state] for state in (*STATES, *sorted(counts.keys() - set(STATES))) if counts[state]},
        metric=config.queue.metric,
        best=tuple(sorted(scores, key=lambda score: (sign * score.value, score.slot))),
    )


def forecast(
    steps_left: int, steps_per_s: float, left_in_job_s: float | None, job_s: float, waits_s: Sequence[float]
) -> Forecast | None:
    """Args: `left_in_job_s`: training time left in the present job (None: it has no end). `job_s`: training time of a
    whole job. `waits_s`: seconds between the slot's last jobs. None where the rate says nothing.
    """
    if steps_per_s <= 0 or steps_left < 0:
        return None
    training_s = steps_left / steps_per_s
    if not math.isfinite(training_s):
        return None
    rest_s = training_s - max(0.0, left_in_job_s) if left_in_job_s is not None else 0.0
    if rest_s <= 0:
        return Forecast(finish_in_s=training_s, more_jobs=0, waits_included=True)
    more = math.ceil(rest_s / max(job_s, 1.0))
    wait_s = sum(waits_s) / len(waits_s) if waits_s else 0.0
    return Forecast(finish_in_s=training_s + more * wait_s, more_jobs=more, waits_included=bool(waits_s))


def waits_between(attempts: Sequence[Attempt]) -> list[float]:
    """Seconds from the end of each attempt to the beginning of the next, but for ends that a person wished."""
    return [
        max(0.0, after.started_at - before.ended_at)
        for before, after in pairwise(attempts)
        if before.ended_at is not None and after.started_at is not None
        if before.asked != ASKED_TO and before.verdict is not Verdict.CANCELLED
    ]


class Cost(Frozen):
    """At `per_hour` for all that runs now, in any currency: of a million steps, and of what is left. `left_s`: until
    the last running slot is done; None where some slot's length is not known. `others`: unfinished, and not measured.
    """

    per_hour: float
    steps_per_s: float
    per_million_steps: float
    left_steps: int
    left_s: float | None
    left: float | None
    others: int


def cost_of(view: RunView, per_hour: float) -> Cost | None:
    """None where no slot that runs has been measured."""
    measured = [(slot, slot.rate) for slot in view.slots if slot.rate]
    if not measured:
        return None
    steps_per_s = sum(rate for _, rate in measured)
    left = [(max(0, slot.total - (slot.step or 0)), rate) for slot, rate in measured if slot.total is not None]
    left_s = max(steps / rate for steps, rate in left) if len(left) == len(measured) else None
    over = {"finished", "failed", "dropped", "behind"}
    return Cost(
        per_hour=per_hour,
        steps_per_s=steps_per_s,
        per_million_steps=MANY_STEPS / steps_per_s / 3600 * per_hour,
        left_steps=sum(steps for steps, _ in left),
        left_s=left_s,
        left=left_s / 3600 * per_hour if left_s is not None else None,
        others=sum(
            not (slot.rate or slot.state in over or (slot.total is not None and (slot.step or 0) >= slot.total))
            for slot in view.slots
        ),
    )


def cost_words(cost: Cost | None, per_hour: float) -> str:
    """One line for people."""
    price = f"at {per_hour:g} an hour"
    if cost is None:
        return f"{price}: no running slot has reported its speed yet"
    words = f"{price} and {cost.steps_per_s:,.1f} steps/s: {number(MANY_STEPS)} steps ≈ {cost.per_million_steps:,.2f}"
    if cost.left_s is not None and cost.left is not None:
        words += f"; the remaining {number(cost.left_steps)} ≈ {cost.left:,.2f} (in {span(cost.left_s)})"
    if cost.others:
        words += f"; not included: {counted(cost.others, 'unfinished slot')} without a measured rate"
    return f"{words}; restarts and idle time cost extra"
