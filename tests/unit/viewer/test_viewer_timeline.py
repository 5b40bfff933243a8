"""The time line: every second of a slot has one kind, in the order in which they come."""

from __future__ import annotations

from itertools import pairwise

from builders import NOW

from orchestrator.screens.runview import JobFacts, SlotFacts
from viewer.timeline import bars_of, row_of


def a_job(attempt: int, start: float, end: float | None, **more: float) -> JobFacts:
    return JobFacts(attempt=attempt, started_at=start, ended_at=end, open=end is None, submitted_at=start - 10, **more)


def parts(facts: SlotFacts) -> list[tuple[int, str, float, float | None]]:
    return [(bar.attempt, one.part, one.start, one.end) for bar in bars_of(facts, [], NOW) for one in bar.parts]


def test_a_hand_over_is_waiting_queue_start_up_running_and_saving_without_a_hole() -> None:
    first = a_job(0, 1000.0, 2000.0, first_step_at=1030.0, asked_at=1950.0)
    second = a_job(1, 2060.0, None, first_step_at=2080.0)
    found = parts(SlotFacts(slot=0, jobs=(first, second), begun_at=990.0))
    assert found == [
        (0, "queue", 990.0, 1000.0), (0, "start-up", 1000.0, 1030.0), (0, "running", 1030.0, 1950.0),
        (0, "saving", 1950.0, 2000.0), (1, "waiting", 2000.0, 2050.0), (1, "queue", 2050.0, 2060.0),
        (1, "start-up", 2060.0, 2080.0), (1, "running", 2080.0, None),
    ]  # fmt: skip
    assert all(before[3] == after[2] for before, after in pairwise(found))


def test_a_job_that_left_no_record_of_its_end_is_followed_by_a_blind_time() -> None:
    lost = JobFacts(attempt=0, started_at=100.0, seen_at=200.0, proven_at=500.0)
    found = parts(SlotFacts(slot=0, jobs=(lost, a_job(1, 600.0, 700.0)), begun_at=100.0))
    assert (1, "blind", 230.0, 500.0) in found


def test_what_a_slot_waits_for_now_has_no_end() -> None:
    facts = SlotFacts(slot=0, jobs=(a_job(0, 100.0, 200.0),), begun_at=90.0, queued_at=260.0)
    assert parts(facts)[-2:] == [(1, "waiting", 200.0, 260.0), (1, "queue", 260.0, None)]
    over = SlotFacts(slot=0, jobs=(a_job(0, 100.0, 200.0),), begun_at=90.0, over=True)
    assert parts(over)[-1][1] == "running"


def test_an_end_that_is_told_twice_counts_once() -> None:
    end = {"kind": "ended", "attempt": 0, "job_id": "7", "verdict": "crashed", "cause": "out of memory"}
    events = [end | {"step": 900, "checkpoint_step": 700}] * 2 + [{"kind": "ended", "attempt": 1, "step": 5}]
    row = row_of(SlotFacts(slot=0, jobs=(a_job(0, 1.0, 2.0),), over=True), events, NOW, None)
    (job,) = row.jobs
    assert (row.lost, job.job, job.words, job.lost) == (200, "7", "crashed (out of memory)", 200)
