from __future__ import annotations

import random
from typing import Any

from builders import a_slot
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import parse_config
from orchestrator.decisions.models import Ledger
from orchestrator.decisions.turns import Turns, in_turn, turns_of
from orchestrator.sections import QueueSection

JOB_S = 4 * 3600.0


def turns(order: str = "fair", **priorities: int) -> Turns:
    queue = QueueSection.model_validate({"order": order})
    return Turns(queue=queue, priorities={int(slot[1:]): value for slot, value in priorities.items()}, job_s=JOB_S)


def turns_with(**config: Any) -> Turns:
    value = {"lead_seconds": 600, "slurm": {"time_limit": "4:10:00", "max_jobs": 1}, **config}
    return turns_of(parse_config(value, "c.json"))


def test_a_whole_job_is_as_long_as_jobs_work() -> None:
    assert turns_with(slots=2).job_s == 4 * 3600
    assert turns_with(training={"max_runtime_seconds": 1800}).job_s == 1800
    assert turns_with(training={"max_runtime_seconds": 1800}, command=["./mine"]).job_s == 1800
    assert turns_with(training={"max_runtime_seconds": 99 * 3600}).job_s == 4 * 3600
    of_some = turns_with(experiments=[{"seed": 1}, {"seed": 2, "max_runtime_seconds": 900}])
    assert of_some.job_s == 900
    of_a_program = turns_with(command=["./mine"], experiments=[{"seed": 1}, {"seed": 2, "max_runtime_seconds": 900}])
    assert of_a_program.job_s == 4 * 3600  # a param of its own


@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(1, 5))
def test_nobody_starves_and_nobody_waits_for_one_that_has_worked_a_job_more(seed: int, slots: int, places: int) -> None:
    """However long the jobs are: each is cut somewhere between nothing and its whole time."""
    places = min(places, slots // 2)
    rng = random.Random(seed)
    ledger = Ledger(run_id="r", epoch=0, slots=tuple(a_slot(k).built for k in range(slots)))
    had = [0] * slots
    for _ in range(20 * slots):
        chosen = in_turn(ledger.slots, turns())[:places]
        now = list(ledger.slots)
        waiting = [slot.worked_s for slot in now if slot not in chosen]
        assert max(slot.worked_s for slot in chosen) - min(waiting) <= JOB_S
        for slot in chosen:
            had[slot.index] += 1
            worked_s = slot.worked_s + rng.choice([1.0, 0.9, 0.3]) * JOB_S
            now[slot.index] = slot.model_copy(update={"worked_s": worked_s})
        ledger = ledger.model_copy(update={"slots": tuple(now)})
    assert min(had) > 0
