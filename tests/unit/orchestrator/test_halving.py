from __future__ import annotations

from typing import Any

import pytest
from builders import NOW, a_claim, a_job, a_look, a_row, a_run, a_slot, a_wish, seen
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.edits import with_intents
from orchestrator.decisions.evidence import Evidence, Progress
from orchestrator.decisions.models import HandOver, Ledger, Slot, SlotStatus, Submit, Verdict
from orchestrator.decisions.plan import Limits, plan
from orchestrator.decisions.turns import (
    Turns,
    is_at_rung,
    may_pass,
    rung_steps,
    with_rungs,
)
from orchestrator.sections import QueueSection

TOTAL = 900


def a_queue(factor: int = 3, **more: Any) -> QueueSection:
    return QueueSection.model_validate({"metric": "score", "halving": {"first_steps": 100, "factor": factor}, **more})


QUEUE = a_queue()


def reached(index: int, score: float | None, step: int = 100, **more: Any) -> Any:
    return a_slot(index, step=step, total=TOTAL, metric=score, **more)


def planned(ledger: Ledger, places: int, queue: QueueSection = QUEUE) -> list[Any]:
    limits = Limits(len(ledger.slots), places, 0, turns=Turns(queue=queue))
    return plan(ledger, a_wish(), limits, {}, 0.0, lambda: "0" * 8)


def test_the_best_third_may_pass_the_highest_rung_first() -> None:
    ledger = with_rungs(a_run(*(reached(k, k / 10) for k in range(7))), QUEUE)
    assert [slot.index for slot in may_pass(ledger.slots, QUEUE)] == [6, 5]
    higher = [reached(k, k / 10, step=300, level=1, rungs=(k / 10,)) for k in (7, 8, 9)]
    ledger = with_rungs(a_run(*(reached(k, k / 10) for k in range(7)), *higher), QUEUE)
    assert [slot.index for slot in may_pass(ledger.slots, QUEUE)] == [9]


def test_who_passes_gets_a_job_and_its_level_is_on_the_disk_with_the_intent() -> None:
    ledger = with_rungs(a_run(*(reached(k, k / 10) for k in range(3)), a_slot(3)), QUEUE)
    actions = planned(ledger, places=2)
    assert [(a.slot, a.level) for a in actions if isinstance(a, Submit)] == [(2, 1), (3, None)]
    after = with_intents(ledger, actions, 0.0)
    assert [slot.level for slot in after.slots] == [0, 0, 1, 0]
    assert not is_at_rung(after.slots[2], QUEUE)


def test_who_is_at_work_saves_at_its_rung_unless_it_is_among_the_best() -> None:
    at_work = {"attempts": a_slot().with_attempt(a_job(), claimed_by=a_job().token).built.attempts}
    few = with_rungs(a_run(reached(0, 0.9).but(**at_work), a_slot(1)), QUEUE)
    assert any(isinstance(action, HandOver) for action in planned(few, places=1))
    enough = with_rungs(a_run(reached(0, 0.9).but(**at_work), reached(1, 0.1), reached(2, 0.2), a_slot(3)), QUEUE)
    assert enough.slots[0].level == 1
    assert not any(isinstance(action, HandOver) for action in planned(enough, places=1))


def test_who_is_measured_late_goes_on_until_then_to_the_next_rung_at_most() -> None:
    """As after an evaluation, which takes a while; the rung is of the metric that was told first."""
    silent = with_rungs(a_run(reached(0, None, step=120), a_slot(1)), QUEUE)
    assert not is_at_rung(silent.slots[0], QUEUE)
    told = with_rungs(a_run(reached(0, 0.7, step=140), a_slot(1)), QUEUE)
    assert (is_at_rung(told.slots[0], QUEUE), told.slots[0].rungs) == (True, (0.7,))
    never = with_rungs(a_run(reached(0, None, step=300), a_slot(1)), QUEUE)
    assert is_at_rung(never.slots[0], QUEUE)
    assert never.slots[0].why == 'at rung 1 (100 steps), and up to 300 steps, its program has reported no "score"'
    assert not is_at_rung(reached(0, None, step=300, level=1).built, QUEUE), "its end is nearer than the next rung"


def test_a_metric_that_is_no_number_any_more_is_not_what_it_was() -> None:
    ledger, found = a_run(a_slot().with_attempt(a_job(sighting=seen(), at=NOW - 60))), []
    for said in ({"score": 0.3}, {}, {"score": float("nan")}, {"score": 0.2}):
        report = Progress.model_validate({"step": 50, "total": TOTAL, "checkpoint_step": 0, **said})
        look = a_look().seeing(a_row()).reading(Evidence(claim=a_claim(), progress=report, beat=1))
        ledger, _ = look.folded_into(ledger, queue=QUEUE)
        found.append(ledger.slots[0].metric)
    assert found == [0.3, 0.3, None, 0.2]


def test_when_nobody_can_change_the_order_any_more_the_others_are_behind() -> None:
    done = reached(3, 0.9, step=900, level=2, rungs=(0.9, 0.9), status=SlotStatus.FINISHED)
    ledger = with_rungs(a_run(*(reached(k, k / 10) for k in range(2)), done), QUEUE)
    assert [slot.status for slot in ledger.slots] == [SlotStatus.BEHIND, SlotStatus.BEHIND, SlotStatus.FINISHED]
    waits = with_rungs(a_run(*(reached(k, k / 10) for k in range(2)), a_slot(2)), QUEUE)
    assert {slot.status for slot in waits.slots} == {SlotStatus.ACTIVE}


@pytest.mark.parametrize("status", [SlotStatus.FAILED, SlotStatus.DROPPED, SlotStatus.PAUSED])
def test_where_the_best_is_out_of_the_race_the_next_one_comes_to_its_end(status: SlotStatus) -> None:
    out = reached(2, 0.9, step=150, level=1, rungs=(0.9,), status=status)
    ledger = with_rungs(a_run(*(reached(k, k / 10) for k in range(2)), out), QUEUE)
    assert [slot.status for slot in ledger.slots] == [SlotStatus.ACTIVE, SlotStatus.ACTIVE, status]
    assert [slot.index for slot in may_pass(ledger.slots, QUEUE)] == [1]


def test_the_last_one_is_not_stopped_at_the_rungs_on_its_way() -> None:
    at_work = {"attempts": a_slot().with_attempt(a_job(), claimed_by=a_job().token).built.attempts}
    last = reached(0, 0.9, step=300, level=1, rungs=(0.9,)).but(**at_work)
    ledger = with_rungs(a_run(last, *(reached(k, k / 10) for k in (1, 2))), QUEUE)
    assert ledger.slots[0].level == 2
    assert not any(isinstance(action, HandOver) for action in planned(ledger, places=1))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(2, 5), st.integers(1, 4), st.randoms())
def test_a_contest_ends_with_the_best_and_spends_less_on_the_others(
    scores: list[float], factor: int, places: int, rng: Any
) -> None:
    """Each experiment has a score of its own. Jobs end in any order; a decision once made is never taken back."""
    queue = a_queue(factor)
    ledger = Ledger(run_id="r", epoch=0, slots=tuple(Slot(index=k, total=TOTAL) for k in range(len(scores))))
    levels = [0] * len(scores)
    at_work: set[int] = set()
    for _ in range(40 * len(scores)):
        ledger = with_rungs(ledger, queue)
        for slot in ledger.slots:
            assert slot.level >= levels[slot.index]
            levels[slot.index] = slot.level
        actions = planned(ledger, places, queue)
        ledger = with_intents(ledger, actions, 0.0)
        at_work |= {action.slot for action in actions if isinstance(action, Submit)}
        if not at_work:
            break
        index = rng.choice(sorted(at_work))
        at_work.discard(index)
        slot = ledger.slots[index]
        assert queue.halving is not None
        step = min(TOTAL, rung_steps(slot.level, queue.halving))
        over = {"status": SlotStatus.FINISHED} if step == TOTAL else {}
        ended = slot.attempts[-1].model_copy(update={"verdict": Verdict.HANDED_OVER, "submissions": ()})
        slots = list(ledger.slots)
        slots[index] = slot.model_copy(
            update={"step": step, "metric": scores[index], "attempts": (ended,), "worked_s": slot.worked_s + 1, **over}
        )
        ledger = ledger.model_copy(update={"slots": tuple(slots)})
    ledger = with_rungs(ledger, queue)
    assert {slot.status for slot in ledger.slots} <= {SlotStatus.FINISHED, SlotStatus.BEHIND}
    best = max(range(len(scores)), key=lambda k: (scores[k], -k))
    if len(scores) >= factor:
        assert ledger.slots[best].level >= 1
    assert all(len(slot.rungs) >= 1 for slot in ledger.slots)
    assert any(slot.status is SlotStatus.FINISHED for slot in ledger.slots)
