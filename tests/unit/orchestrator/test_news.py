from __future__ import annotations

from pathlib import Path

import pytest
from builders import FORGET_AFTER_S, NOW, a_run, a_slot
from one_run import POLL_S, World

from orchestrator.decisions.edits import AGAIN_S, QUOTA_WAIT_S, after_refusal
from orchestrator.decisions.models import SlotStatus, SubmissionState, Verdict
from orchestrator.decisions.requests import BLIND_LONG_S, is_put_off, news_of, news_of_slots
from orchestrator.decisions.sightings import FOR_EVER_S
from orchestrator.executors.base import JobState, SubmitRefused, Uncertain
from orchestrator.run.ledger import write_control

RUNNING = a_run(a_slot(), a_slot(1, status=SlotStatus.FINISHED))


def test_a_slot_that_is_paused_failed_or_finished_is_told_once() -> None:
    for status in (SlotStatus.PAUSED, SlotStatus.FAILED):
        after = a_run(a_slot(status=status, why="because"), a_slot(1, status=SlotStatus.FINISHED))
        _, told = news_of(RUNNING, after, 2, NOW)
        assert [(kind, facts["slot"], facts["words"]) for kind, facts in told] == [(str(status), 0, "because")]
        assert news_of(after, after, 2, NOW)[1] == []


def test_the_last_slot_finishes_the_run() -> None:
    after = a_run(a_slot(status=SlotStatus.FINISHED), a_slot(1, status=SlotStatus.FINISHED))
    assert [kind for kind, _ in news_of(RUNNING, after, 2, NOW)[1]] == ["finished", "run finished"]


@pytest.mark.parametrize("other", [SlotStatus.BEHIND, SlotStatus.DROPPED])
def test_a_run_is_finished_where_the_others_are_not_to_go_on(other: SlotStatus) -> None:
    after = a_run(a_slot(status=other), a_slot(1, status=SlotStatus.FINISHED))
    [(kind, facts)] = news_of(RUNNING, after, 2, NOW)[1]
    assert (kind, facts["words"]) == ("run finished", "1 slot is finished, and none of the 2 is left to go on")
    assert news_of(after, after, 2, NOW)[1] == []
    nobody = a_run(a_slot(status=other), a_slot(1, status=other))
    assert news_of(a_run(a_slot(), a_slot(1, status=other)), nobody, 2, NOW)[1] == []


def test_a_long_blindness_is_told_once_and_so_is_its_end() -> None:
    short = a_run(a_slot(), blind_since=NOW, blind_error="down")
    assert news_of(short, short, 1, NOW + BLIND_LONG_S - 1)[1] == []
    long, told = news_of(short, short, 1, NOW + BLIND_LONG_S)
    assert [kind for kind, _ in told] == ["blind"]
    assert news_of(long, long, 1, NOW + 2 * BLIND_LONG_S)[1] == []
    seen, told = news_of(long, long.model_copy(update={"blind_since": None}), 1, NOW + 3 * BLIND_LONG_S)
    assert [kind for kind, _ in told] == ["sighted"]
    assert news_of(seen, seen, 1, NOW)[1] == []


def test_a_short_blindness_has_no_end_to_tell() -> None:
    short = a_run(a_slot(), blind_since=NOW)
    assert news_of(short, short.model_copy(update={"blind_since": None}), 1, NOW + 5)[1] == []


def test_a_slot_that_is_put_off_is_told_once() -> None:
    before, put_off = a_run(a_slot(jobs=1)), after_refusal("no such account", NOW, had_jobs=True)
    after = a_run(a_slot(jobs=1, **put_off))
    told = ("put off", {"slot": 0, "words": put_off["why"], "step": 0})
    assert news_of_slots(before, after, 1) == [told]
    assert news_of_slots(after, after, 1) == []
    failed = a_run(a_slot(jobs=1, not_before=NOW + AGAIN_S, why="job 7 failed: out of memory (failure 5 of 6)"))
    assert news_of_slots(before, failed, 1) == []


def put_off_news(world: World) -> int:
    return len([kind for kind, _ in world.told if kind == "put off"])


def test_what_slurm_refuses_each_hour_is_told_the_first_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tick()
    world.job_claims(exit_code=75)
    world.cluster.answers = [SubmitRefused(kind="permanent", words="Invalid account") for _ in range(3)]
    world.tick(after=POLL_S)
    for submissions in (3, 4):
        world.tick(after=AGAIN_S)
        world.tick(after=POLL_S)
        assert (len(world.cluster.submitted), is_put_off(world.slot)) == (submissions, True)
        assert put_off_news(world) == 1


def test_a_job_that_can_never_run_is_told_the_first_time_and_again_after_one_that_ran(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tick()
    world.job_claims(exit_code=75)
    world.tick(after=POLL_S)
    for told, which in ((1, 1), (1, 2), (1, 3)):
        never_runs(world, which)
        assert (is_put_off(world.slot), put_off_news(world)) == (True, told)
        world.tick(after=AGAIN_S)
    attempt = world.slot.attempts[-1].number
    world.job_claims(attempt, exit_code=75)
    world.tick(after=POLL_S)
    assert world.slot.put_off_since is None
    never_runs(world, 5)
    assert put_off_news(world) == 2


REFUSED = SubmitRefused(kind="permanent", words="Invalid account")


@pytest.mark.parametrize(
    "between",
    [
        SubmitRefused(kind="temporary", words="Socket timed out on send/recv operation"),
        SubmitRefused(kind="quota", words="QOSMaxSubmitJobPerUserLimit"),
    ],
    ids=["temporary", "quota"],
)
def test_another_answer_between_two_refusals_for_good_does_not_make_the_second_one_news(
    tmp_path: Path, between: SubmitRefused
) -> None:
    world = World(tmp_path)
    world.tick()
    world.job_claims(exit_code=75)
    world.cluster.answers = [REFUSED, *[between, REFUSED] * 5]
    world.tick(after=POLL_S)
    for hour in range(1, 6):
        world.tick(after=AGAIN_S)
        assert world.slot.why.endswith(between.words) or f"({between.words})" in world.slot.why
        world.tick(after=QUOTA_WAIT_S)
        assert (len(world.cluster.submitted), world.slot.why.split(" (")[0]) == (2 + 2 * hour, REFUSED.words)
        assert (is_put_off(world.slot), put_off_news(world)) == (True, 1)


def test_a_submission_that_is_not_clear_between_two_refusals_does_not_either(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tick()
    world.job_claims(exit_code=75)
    world.cluster.answers = [REFUSED, Uncertain(why="no answer"), REFUSED]
    world.tick(after=POLL_S)
    world.tick(after=AGAIN_S)
    assert world.states()[-1] is SubmissionState.UNCERTAIN
    while len(world.cluster.submitted) < 4 and world.time < NOW + 3 * AGAIN_S:
        world.tick(after=POLL_S)
    assert world.slot.why.startswith(REFUSED.words)
    assert (is_put_off(world.slot), put_off_news(world)) == (True, 1)


def test_of_two_slots_for_one_place_each_is_told_once(tmp_path: Path) -> None:
    world = World(tmp_path, slots=2, slurm={"max_jobs": 1})
    world.tick()
    world.job_claims(exit_code=75)
    world.cluster.answers = [REFUSED] * 20
    world.tick(after=POLL_S)
    waited = set()
    for _ in range(6):
        world.tick(after=AGAIN_S)  # both are due: one waits for room until the other is refused
        waited |= {slot.index for slot in world.ledger.slots if slot.why.startswith("waits for room")}
        world.tick(after=POLL_S)
    assert waited
    assert all(is_put_off(slot) for slot in world.ledger.slots)
    assert sorted(facts["slot"] for kind, facts in world.told if kind == "put off") == [0, 1]


@pytest.mark.parametrize(("raw", "log"), [("FAILED", "KeyError: 'x'"), ("NODE_FAIL", ""), ("PREEMPTED", "")])
def test_a_job_that_ran_ends_it_also_where_it_failed_before_its_claim(tmp_path: Path, raw: str, log: str) -> None:
    world = World(tmp_path)
    world.tick()
    world.job_claims(exit_code=75)
    world.cluster.answers = [REFUSED]
    world.tick(after=POLL_S)
    world.tick(after=AGAIN_S)
    assert (len(world.cluster.submitted), is_put_off(world.slot)) == (3, True)
    (world.run_dir.job(world.cluster.submitted[2]) / "job-103.err").write_text(log)
    world.job_shows(JobState.ENDED, 2, raw=raw)
    world.tick(after=POLL_S)
    assert (len(world.cluster.submitted), is_put_off(world.slot)) == (4, False)
    world.job_shows(JobState.ENDED, 3, raw="PREEMPTED")
    world.cluster.answers = [REFUSED]
    world.tick(after=POLL_S)
    assert (is_put_off(world.slot), put_off_news(world)) == (True, 2)


def test_a_job_that_could_never_run_and_of_whose_cancel_nobody_knows_does_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tick()
    world.job_claims(exit_code=75)
    world.tick(after=POLL_S)
    never_runs(world, 1)
    world.tick(after=AGAIN_S)
    world.job_shows(JobState.PENDING, 2, reason="PartitionTimeLimit")
    for _ in range(2):
        world.tick(after=FOR_EVER_S)
    world.cluster.rows.clear()
    for _ in range(int(FORGET_AFTER_S / POLL_S) + 2):
        world.tick(after=POLL_S)
    assert Verdict.NODE_FAILED in [attempt.verdict for attempt in world.slot.attempts]
    assert (is_put_off(world.slot), put_off_news(world)) == (True, 1)


def test_who_types_start_hears_of_it_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tick()
    world.job_claims(exit_code=75)
    world.cluster.answers = [REFUSED, REFUSED]
    world.tick(after=POLL_S)
    first = world.slot.put_off_since
    assert first == world.time
    write_control(world.run_dir, "run", now=world.time, by="start")
    world.tick(after=POLL_S)
    assert (world.slot.put_off_since, put_off_news(world)) == (first + POLL_S, 2)


def never_runs(world: World, which: int) -> None:
    """The job that was submitted at this place waits for what cannot come, and is cancelled."""
    world.job_shows(JobState.PENDING, which, reason="PartitionTimeLimit")
    for _ in range(2):
        world.tick(after=FOR_EVER_S)
    world.job_shows(JobState.ENDED, which, raw="CANCELLED")
    world.tick(after=POLL_S)
