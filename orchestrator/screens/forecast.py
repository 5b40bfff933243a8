"""When a slot's training will be done, as far as that can be said. Pure.

Only what is known is counted: the steps that are left at the present rate, and for each further job that they need the
wait that this slot has had between its last jobs. Where no wait is known yet the forecast says that it leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from orchestrator.decisions.models import Attempt, Verdict
from orchestrator.decisions.verdicts import ASKED_TO
from orchestrator.executors.base import Frozen


class Forecast(Frozen):
    """`finish_in_s`: seconds to the end. `more_jobs`: jobs needed after the present one. `waits_included`: whether the
    waits between them are in it; False makes it a lower bound.
    """

    finish_in_s: float
    more_jobs: int
    waits_included: bool


def forecast(
    steps_left: int,
    steps_per_s: float,
    left_in_job_s: float | None,
    job_s: float,
    waits_s: Sequence[float],
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
