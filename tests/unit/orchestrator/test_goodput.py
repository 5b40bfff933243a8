"""Where the time went: by example for each kind, and by property for what must always add up."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.screens.goodput import (
    BEAT_S,
    RunGoodput,
    Times,
    account,
    end_of,
    goodput_lines,
    times_of,
)
from orchestrator.screens.runview import JobFacts, SlotFacts

NOW = 10_000.0


def a_job(attempt=0, start=0.0, **more):
    return JobFacts(attempt=attempt, started_at=start, **more)


def only(times, **expected):
    """Exactly these kinds have time."""
    got = {name: value for name, value in times.model_dump(include=set(Times.model_fields)).items() if value}
    assert got == pytest.approx(expected)


SAVED = {"first_step_at": 20, "asked_at": 110, "done": 90}


@pytest.mark.parametrize(
    ("job", "now", "times"),
    [
        # It hands over; steps that no successor began with are lost at the job's own rate.
        ({**SAVED, "answered_at": 115, "ended_at": 115, "kept": 90}, NOW,
         {"start_up_s": 20, "productive_s": 90, "saving_s": 5}),
        ({"first_step_at": 20, "ended_at": 120, "done": 200, "kept": 150}, NOW,
         {"start_up_s": 20, "productive_s": 75, "lost_s": 25}),
        # Killed: it is given one heartbeat more than its last sign of life.
        ({"first_step_at": 20, "seen_at": 90, "proven_at": 500, "done": 100}, NOW,
         {"start_up_s": 20, "lost_s": 70 + BEAT_S}),
        ({"first_step_at": 20, "seen_at": 90, "proven_at": 100, "done": 100}, NOW, {"start_up_s": 20, "lost_s": 80}),
        # It runs, and has lost nothing yet. What reports nothing works once it has saved: before, it may crash.
        ({"first_step_at": 20, "seen_at": 90, "done": 10, "open": True}, 100, {"start_up_s": 20, "productive_s": 80}),
        ({"done": 0, "open": True}, 100, {"start_up_s": 100}),
        ({"open": True}, 100, {"start_up_s": 100}),
        ({"open": True, "kept": 1}, 100, {"productive_s": 100}),
        ({"ended_at": 100, "kept": 1}, NOW, {"productive_s": 100}),
        ({"ended_at": 100}, NOW, {"lost_s": 100}),
        # Asked before its first step; asked, and it did not answer; it saved and stayed; it is still at it.
        ({"asked_at": 30, "answered_at": 40, "ended_at": 40, "done": 0}, NOW, {"start_up_s": 30, "saving_s": 10}),
        ({**SAVED, "seen_at": 290, "proven_at": 300, "kept": 45}, NOW,
         {"start_up_s": 20, "productive_s": 45, "lost_s": 45 + 190}),
        ({**SAVED, "answered_at": 130, "ended_at": 200, "kept": 90}, NOW,
         {"start_up_s": 20, "productive_s": 90, "saving_s": 20, "lost_s": 70}),
        ({**SAVED, "seen_at": 140, "open": True}, 150, {"start_up_s": 20, "productive_s": 90, "saving_s": 40}),
    ],
)  # fmt: skip
def test_the_time_of_a_job_has_four_parts(job, now, times):
    only(times_of(a_job(**job), now), **times)


def test_the_cause_of_a_low_goodput_is_never_nothing():
    slot = account(SlotFacts(0, (a_job(ended_at=0.31),), over=True), NOW)
    view = RunGoodput(run_id="r", run_name="r", run_dir="/r", at=NOW, times=slot.times, slots=(slot,))
    assert goodput_lines(view)[1] == "slot 0: goodput 0.00 %, 1 job, lost 0.3 s"


DONE = a_job(ended_at=100, kept=1)
SILENT = {"first_step_at": 0, "seen_at": 70, "proven_at": 400, "done": 5}


@pytest.mark.parametrize(
    ("jobs", "more", "now", "times"),
    [
        ((DONE, a_job(1, 160, submitted_at=130, ended_at=200, kept=1)), {"over": True}, NOW,
         {"productive_s": 140, "waiting_s": 30, "queue_s": 30}),
        ((DONE, a_job(1, 101, submitted_at=5, ended_at=200, kept=1)), {"over": True}, NOW,  # it was queued ahead
         {"productive_s": 199, "queue_s": 1}),
        # Nobody knows how a silent job spent the time until its end was proven, also where its successor waited.
        ((a_job(**SILENT), a_job(1, 460, submitted_at=410, open=True, kept=1)), {}, 500,
         {"lost_s": 100, "blind_s": 300, "waiting_s": 10, "queue_s": 50, "productive_s": 40}),
        ((a_job(**SILENT), a_job(1, 460, submitted_at=50, ended_at=500, kept=1)), {"over": True}, NOW,
         {"lost_s": 100, "blind_s": 300, "queue_s": 60, "productive_s": 40}),
        # The last gap lasts until now, unless the slot wants no job.
        ((DONE,), {"queued_at": 130}, 150, {"productive_s": 100, "waiting_s": 30, "queue_s": 20}),
        ((DONE,), {"over": True}, 150, {"productive_s": 100}),
        ((), {"begun_at": 40, "queued_at": 50}, 150, {"waiting_s": 10, "queue_s": 100}),
        ((), {}, 150, {}),
    ],
)  # fmt: skip
def test_what_lies_between_jobs_is_queue_waiting_or_blind(jobs, more, now, times):
    only(account(SlotFacts(0, jobs, **more), now).times, **times)


moments = st.floats(0, NOW)
maybe = st.none() | moments


@st.composite
def jobs_of_a_slot(draw, *, apart):
    """Any jobs, with clocks that contradict each other; `apart`: one after the other, with records of their ends."""
    count = draw(st.integers(0, 5))
    bounds = sorted(draw(st.lists(moments, min_size=2 * count, max_size=2 * count))) if apart else []
    jobs = []
    for attempt in range(count):
        start = bounds[2 * attempt] if apart else draw(moments)
        jobs.append(
            JobFacts(
                attempt=attempt,
                started_at=start,
                submitted_at=draw(maybe),
                first_step_at=draw(maybe),
                asked_at=draw(maybe),
                answered_at=draw(maybe),
                ended_at=bounds[2 * attempt + 1] if apart else draw(maybe),
                seen_at=draw(maybe),
                proven_at=draw(maybe),
                done=draw(st.none() | st.integers(0, 1000)),
                kept=draw(st.integers(0, 1200)),
                open=False if apart else draw(st.booleans()),
            )
        )
    begun_at = min([job.started_at for job in jobs], default=0.0) - draw(st.floats(0, 100))
    return SlotFacts(0, tuple(jobs), begun_at, draw(maybe), over=draw(st.booleans()))


@given(jobs_of_a_slot(apart=False))
def test_no_part_is_negative_and_the_parts_of_a_job_are_the_whole_of_it(facts):
    slot = account(facts, NOW)
    for job, seen in zip(facts.jobs, slot.jobs, strict=True):
        assert min(seen.times.model_dump(include=set(Times.model_fields)).values()) >= -1e-6
        assert seen.times.allocated_s == pytest.approx(end_of(job, NOW) - job.started_at, abs=1e-6)
    assert min(slot.times.model_dump(include=set(Times.model_fields)).values()) >= -1e-6
    assert slot.times.allocated_s == pytest.approx(sum(job.times.allocated_s for job in slot.jobs), abs=1e-6)
    assert slot.times.goodput is None or -1e-9 <= slot.times.goodput <= 1 + 1e-9


@given(jobs_of_a_slot(apart=True))
def test_of_jobs_one_after_the_other_all_kinds_add_up_to_the_slots_whole_time(facts):
    times = account(facts, NOW).times
    ends = [job.ended_at for job in facts.jobs]
    last = NOW if not facts.over else max([*ends, facts.begun_at] if facts.jobs else [facts.begun_at])
    whole = sum(getattr(times, name) for name in Times.model_fields)
    assert whole == pytest.approx(max(0, last - facts.begun_at), abs=1e-4)
    gaps = sum(max(0.0, b.started_at - a.ended_at) for a, b in pairwise(facts.jobs))
    assert times.queue_s + times.waiting_s + times.blind_s >= gaps - 1e-4
