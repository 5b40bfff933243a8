"""Where the time went: by example for each kind, and by property for what must always add up."""

import io
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.screens.goodput import (
    BEAT_S,
    JobFacts,
    JobGoodput,
    RunGoodput,
    SlotFacts,
    SlotGoodput,
    Times,
    account,
    end_of,
    times_of,
    total,
)
from orchestrator.screens.tables import KINDS, goodput_lines, goodput_table

NOW = 10_000.0


def a_job(attempt=0, start=0.0, **more):
    return JobFacts(attempt=attempt, started_at=start, **more)


def only(times, **expected):
    """Exactly these kinds have time."""
    got = {name: value for name, value in times.model_dump(include=set(Times.model_fields)).items() if value}
    assert got == pytest.approx(expected)


def test_a_job_that_hands_over_has_start_up_work_and_saving():
    job = a_job(first_step_at=20, asked_at=110, answered_at=115, ended_at=115, done=90, kept=90)
    only(times_of(job, NOW), start_up_s=20, productive_s=90, saving_s=5)


def test_steps_that_no_successor_began_with_are_lost_at_the_jobs_own_rate():
    job = a_job(first_step_at=20, ended_at=120, done=200, kept=150)
    only(times_of(job, NOW), start_up_s=20, productive_s=75, lost_s=25)


def test_a_killed_job_is_given_one_heartbeat_more_than_its_last_sign_of_life():
    job = a_job(first_step_at=20, seen_at=90, proven_at=500, done=100, kept=0)
    only(times_of(job, NOW), start_up_s=20, lost_s=70 + BEAT_S)
    soon = a_job(first_step_at=20, seen_at=90, proven_at=100, done=100, kept=0)
    only(times_of(soon, NOW), start_up_s=20, lost_s=80)


def test_a_running_job_has_lost_nothing_yet():
    only(times_of(a_job(first_step_at=20, seen_at=90, done=10, open=True), 100), start_up_s=20, productive_s=80)
    only(times_of(a_job(done=0, open=True), 100), start_up_s=100)


def test_a_running_job_that_reports_nothing_works_once_it_has_saved():
    only(times_of(a_job(open=True), 100), start_up_s=100)  # it may crash before it has done anything
    only(times_of(a_job(open=True, kept=1), 100), productive_s=100)


def test_a_program_that_reports_nothing_worked_if_something_of_it_was_kept():
    only(times_of(a_job(ended_at=100, kept=1), NOW), productive_s=100)
    only(times_of(a_job(ended_at=100), NOW), lost_s=100)


def test_who_is_asked_before_the_first_step_has_only_started_and_saved():
    job = a_job(asked_at=30, answered_at=40, ended_at=40, done=0)
    only(times_of(job, NOW), start_up_s=30, saving_s=10)


def test_who_did_not_do_what_he_was_asked_to_lost_the_time_until_he_was_killed():
    ignored = a_job(first_step_at=20, asked_at=110, seen_at=290, proven_at=300, done=90, kept=45)
    only(times_of(ignored, NOW), start_up_s=20, productive_s=45, lost_s=45 + 190)
    saved_and_stayed = a_job(first_step_at=20, asked_at=110, answered_at=130, ended_at=200, done=90, kept=90)
    only(times_of(saved_and_stayed, NOW), start_up_s=20, productive_s=90, saving_s=20, lost_s=70)
    still_at_it = a_job(first_step_at=20, asked_at=110, seen_at=140, done=90, open=True)
    only(times_of(still_at_it, 150), start_up_s=20, productive_s=90, saving_s=40)


def test_a_gap_is_waiting_until_the_submission_and_queue_from_there():
    jobs = (a_job(ended_at=100, kept=1), a_job(1, 160, submitted_at=130, ended_at=200, kept=1))
    only(account(SlotFacts(0, jobs, over=True), NOW).times, productive_s=140, waiting_s=30, queue_s=30)


def test_a_successor_that_was_queued_ahead_leaves_no_waiting():
    jobs = (a_job(ended_at=100, kept=1), a_job(1, 101, submitted_at=5, ended_at=200, kept=1))
    only(account(SlotFacts(0, jobs, over=True), NOW).times, productive_s=199, queue_s=1)


def test_nobody_knows_how_a_silent_job_spent_the_time_until_its_end_was_proven():
    jobs = (
        a_job(first_step_at=0, seen_at=70, proven_at=400, done=5),
        a_job(1, 460, submitted_at=410, open=True, kept=1),
    )
    times = account(SlotFacts(0, jobs), 500).times
    only(times, lost_s=100, blind_s=300, waiting_s=10, queue_s=50, productive_s=40)


def test_a_successor_in_the_queue_does_not_make_a_silent_job_known():
    jobs = (a_job(seen_at=70, proven_at=400, done=5), a_job(1, 460, submitted_at=50, ended_at=500, kept=1))
    only(account(SlotFacts(0, jobs, over=True), NOW).times, lost_s=100, blind_s=300, queue_s=60, productive_s=40)


def test_the_last_gap_lasts_until_now_unless_the_slot_wants_no_job():
    job = a_job(ended_at=100, kept=1)
    only(account(SlotFacts(0, (job,), queued_at=130), 150).times, productive_s=100, waiting_s=30, queue_s=20)
    only(account(SlotFacts(0, (job,), over=True), 150).times, productive_s=100)
    only(account(SlotFacts(0, begun_at=40, queued_at=50), 150).times, waiting_s=10, queue_s=100)
    only(account(SlotFacts(0), 150).times)


def test_goodput_of_nothing_is_nothing():
    assert Times().goodput is None
    assert "goodput" in json.loads(Times().model_dump_json())


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


@given(st.lists(jobs_of_a_slot(apart=False), max_size=4))
def test_a_run_is_the_sum_of_its_slots(slots):
    seen = [account(facts, NOW).times for facts in slots]
    assert total(seen).allocated_s == pytest.approx(sum(times.allocated_s for times in seen), abs=1e-6)


def test_the_table_of_a_long_run_fits_eighty_columns_and_shows_every_kind():
    parts = Times(
        queue_s=50_000, waiting_s=9, start_up_s=1322, productive_s=2.8e6, saving_s=300, lost_s=8000, blind_s=1200
    )
    slots = tuple(SlotGoodput(slot=k, times=parts, jobs=(JobGoodput(attempt=0, times=parts),) * 200) for k in range(4))
    run = RunGoodput(run_id="mt10-1", run_name="mt10", run_dir="/r", at=0, times=total([parts] * 4), slots=slots)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(goodput_table(run, 80))
    head, first, *_, last, _ = console.export_text().splitlines()
    assert head.split() == ["slot", "jobs", "goodput", *(name for name, _ in KINDS)]
    cells = ["0", "200", "99.66", "%", "13:53:20", "9.0", "s", "0:20:00", "0:22:02", "778", "h", "2:13:20", "0:05:00"]
    assert first.split() == cells
    assert last.split()[:2] == ["all", "800"]
    assert goodput_lines(run)[1].startswith("slot 0: goodput 99.66 %, 200 jobs, queue 13:53:20, waiting 9.0 s, ")
