from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from builders import NOW, SUBMIT_GRACE_S
from one_run import POLL_S, World
from refused import refused

from anchorleg.files import create_exclusive, to_json
from orchestrator.controller import BEAT_S
from orchestrator.decisions.models import SlotStatus, SubmissionState, Verdict
from orchestrator.decisions.outcomes import AGAIN_S, QUOTA_WAIT_S, TEMPORARY_WAIT_S
from orchestrator.decisions.sightings import SETTLE_S
from orchestrator.executors.base import (
    JobState,
    SubmitRefused,
    Submitted,
    Uncertain,
)
from orchestrator.run.lease import TTL_S
from orchestrator.run.ledger import write_control
from orchestrator.run.rundir import load_run
from trainer.config.section import BEGUN, TrainingSection


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class TestSubmitting:
    def test_the_intent_is_on_the_disk_before_the_scheduler_hears_of_the_job(self, world: World) -> None:
        seen: list[list[SubmissionState]] = []
        world.cluster.before_submit = lambda: seen.append(world.states())
        world.tick()
        assert seen == [[SubmissionState.INTENT]]
        assert world.states() == [SubmissionState.SUBMITTED]
        assert world.slot.attempts[0].submissions[0].job_id == "101"

    def test_a_job_in_the_queue_is_left_alone(self, world: World) -> None:
        for _ in range(5):
            world.tick(after=POLL_S)
        assert len(world.cluster.submitted) == 1

    def test_a_tick_that_can_make_no_job_does_all_else_first(self, tmp_path: Path) -> None:
        world = World(tmp_path, command=None, training={"preset": "tiny"})
        world.tick()
        gone = world.run.config.model_copy(
            update={"training": TrainingSection.model_validate({"env": "gone"}, context=BEGUN)}
        )
        world.run = world.run.model_copy(update={"config": gone})
        world.controller = world.new_controller()
        world.job_claims(exit_code=75)
        world.job_shows(JobState.ENDED)
        for _ in range(2):
            with refused("config.not-here", why=re.compile("'gone'")):
                world.tick(after=POLL_S)
        assert world.slot.attempts[0].verdict is Verdict.HANDED_OVER
        assert len([line for line in world.said if line.startswith("ended")]) == 1
        assert [path.name for path in world.run_dir.jobs.iterdir()] == world.cluster.submitted
        world.run = load_run(world.run_dir)
        world.controller = world.new_controller()
        world.tick()
        assert len(world.cluster.submitted) == 2

    def test_an_unclear_answer_is_not_followed_by_another_try(self, world: World) -> None:
        world.cluster.answers = [Uncertain(why="sbatch gave no answer within 60 s")]
        world.tick()
        world.tick(after=POLL_S + 5)
        assert len(world.cluster.submitted) == 1
        assert "sbatch gave no answer within 60 s" in world.slot.why

    def test_after_no_answer_the_other_slots_do_not_try_in_the_same_tick(self, tmp_path: Path) -> None:
        world = World(tmp_path, slots=5)
        world.cluster.answers = [Uncertain(why="sbatch gave no answer within 45 s", silent=True)]
        world.tick()
        assert len(world.cluster.submitted) == 1
        assert {slot.why for slot in world.ledger.slots[1:]} == {"sbatch gave no answer within 45 s"}
        world.tick(after=TEMPORARY_WAIT_S)
        assert len(world.cluster.submitted) == 5

    def test_an_answer_that_is_unclear_and_comes_at_once_puts_no_other_slot_off(self, tmp_path: Path) -> None:
        world = World(tmp_path, slots=5)
        world.cluster.answers = [Uncertain(why=f"sbatch printed the id {n} and ended with 1") for n in range(5)]
        world.tick()
        assert len(world.cluster.submitted) == 5

    def test_an_unclear_submission_that_came_to_nothing_is_repeated_after_the_grace(self, world: World) -> None:
        world.cluster.answers = [Uncertain(why="timeout")]
        world.tick()
        world.tick(after=SUBMIT_GRACE_S + 1)
        assert world.states() == [SubmissionState.UNCERTAIN]  # missed for the first time
        world.tick(after=SETTLE_S)
        assert world.states() == [SubmissionState.NOT_SUBMITTED, SubmissionState.SUBMITTED]
        assert [token.split("-")[1] for token in world.cluster.submitted] == ["a0", "a0"]

    def test_a_site_whose_answers_stay_unclear_is_asked_more_and_more_rarely_and_leaves_no_folders(
        self, world: World
    ) -> None:
        world.cluster.answers = [Uncertain(why="Unspecified error") for _ in range(500)]
        for _ in range(24 * 60):
            world.tick(after=60)
        assert 20 < len(world.cluster.submitted) < 100
        assert len(list(world.run_dir.jobs.iterdir())) <= 4
        assert "Unspecified error" in world.slot.why
        world.cluster.answers.clear()
        for _ in range(20):
            world.tick(after=60)
        assert world.states()[-1] is SubmissionState.SUBMITTED
        assert world.slot.why == ""

    def test_an_unclear_submission_that_shows_up_is_the_job(self, world: World) -> None:
        world.cluster.answers = [Uncertain(why="timeout")]
        world.tick()
        world.cluster.show(str(world.run_dir.job(world.cluster.submitted[0])), JobState.RUNNING, "777")
        world.tick(after=SUBMIT_GRACE_S + 1)
        assert world.states() == [SubmissionState.SUBMITTED]
        assert world.slot.attempts[0].submissions[0].job_id == "777"
        assert world.slot.why == ""

    @pytest.mark.parametrize(("kind", "wait_s"), [("quota", QUOTA_WAIT_S), ("temporary", TEMPORARY_WAIT_S)])
    def test_a_passing_refusal_waits_and_is_no_failure(self, world: World, kind: str, wait_s: float) -> None:
        words = "QOSMaxSubmitJobPerUserLimit"
        world.cluster.answers = [SubmitRefused.model_validate({"kind": kind, "words": words})]
        world.tick()
        assert (world.slot.failures, world.slot.status) == (0, SlotStatus.ACTIVE)
        limits = "waits until your limits have room for another job"
        assert world.slot.why == (f"{limits} ({words})" if kind == "quota" else words)
        world.tick(after=wait_s - 1)
        assert len(world.cluster.submitted) == 1
        world.tick(after=1)
        assert len(world.cluster.submitted) == 2
        assert world.slot.why == ""

    def test_what_worked_before_is_tried_again_where_slurm_refuses_it_for_good(self, world: World) -> None:
        world.tick()
        world.job_claims(exit_code=75)
        words = "Batch job submission failed: Invalid account or account/partition combination specified"
        world.cluster.answers = [SubmitRefused(kind="permanent", words=words)]
        world.tick(after=POLL_S)
        assert (world.slot.status, world.slot.failures) == (SlotStatus.ACTIVE, 0)
        assert world.slot.why == f"{words} (the run had jobs before: it is tried again)"
        world.tick(after=AGAIN_S - 1)
        assert len(world.cluster.submitted) == 2
        world.tick(after=1)
        assert (len(world.cluster.submitted), world.states()[-1]) == (3, SubmissionState.SUBMITTED)
        assert world.slot.why == ""

    @pytest.mark.parametrize("delays", [[60, 300], [0, 60]])
    def test_the_hour_is_one_however_soon_a_crash_is_tried_again(self, tmp_path: Path, delays: list[int]) -> None:
        world = World(tmp_path, relay={"retry_delays_seconds": delays})
        world.tick()
        world.job_claims(exit_code=75)
        world.cluster.answers = [SubmitRefused(kind="permanent", words="Invalid account")]
        world.tick(after=POLL_S)
        for _ in range(int(AGAIN_S / 60) - 1):
            world.tick(after=60)
        assert len(world.cluster.submitted) == 2

    def test_a_refusal_for_good_is_none_where_another_slot_had_a_job(self, tmp_path: Path) -> None:
        world = World(tmp_path, slots=2)
        world.cluster.answers = [SubmitRefused(kind="temporary", words="busy"), Submitted(job_id="101")]
        world.tick()
        world.job_claims(exit_code=75)
        refused = SubmitRefused(kind="permanent", words="Invalid account")
        world.cluster.answers = [refused, refused]
        world.tick(after=max(POLL_S, TEMPORARY_WAIT_S))
        assert len(world.cluster.submitted) == 4
        assert {slot.status for slot in world.ledger.slots} == {SlotStatus.ACTIVE}

    def test_a_stop_is_heard_between_two_submissions(self, tmp_path: Path) -> None:
        world = World(tmp_path, slots=5)
        world.cluster.before_submit = lambda: write_control(world.run_dir, "stop", now=NOW, by="stop")
        world.tick()
        assert len(world.cluster.submitted) == 1
        world.tick(after=TEMPORARY_WAIT_S)
        assert len(world.cluster.submitted) == 1

    def test_a_refusal_for_good_stops_the_slot_in_slurms_own_words(self, world: World) -> None:
        words = "sbatch: error: invalid partition specified: gpuu"
        world.cluster.answers = [SubmitRefused(kind="permanent", words=words)]
        world.tick()
        world.tick(after=3600)
        assert (world.slot.status, world.slot.why, len(world.cluster.submitted)) == (SlotStatus.FAILED, words, 1)
        assert world.controller.over

    def test_typing_start_again_gives_a_stopped_slot_another_chance(self, world: World) -> None:
        world.cluster.answers = [SubmitRefused(kind="permanent", words="no")]
        world.tick()
        world.controller.reactivate()
        world.tick(after=1)
        assert world.states() == [SubmissionState.NOT_SUBMITTED, SubmissionState.SUBMITTED]

    def test_a_slot_that_waits_for_room_says_so(self, tmp_path: Path) -> None:
        world = World(tmp_path, slurm={"max_jobs": 2})
        world.cluster.others = 2
        world.tick()
        assert "max_jobs" in world.slot.why


class TestEnds:
    def test_a_hand_over_is_followed_by_the_next_attempt_at_once(self, world: World) -> None:
        world.tick()
        world.job_claims(exit_code=75)
        world.tick(after=1)
        assert world.slot.attempts[0].verdict is Verdict.HANDED_OVER
        assert [token.split("-")[1] for token in world.cluster.submitted] == ["a0", "a1"]

    def test_the_end_of_the_program_ends_the_loop(self, world: World) -> None:
        world.tick()
        world.job_claims(exit_code=0)
        world.controller.loop(interrupted=lambda: False, shown=lambda: None)
        assert world.slot.status is SlotStatus.FINISHED

    def test_an_exit_record_is_noticed_long_before_the_next_poll(self, world: World) -> None:
        ticks: list[float] = []

        def shown() -> None:
            ticks.append(world.time)
            if world.time > NOW + 3 and not (world.run_dir.attempt(0, 0) / "exit.json").exists():
                world.job_claims(exit_code=0)

        world.controller.loop(interrupted=lambda: world.time > NOW + 60, shown=shown)
        assert world.slot.status is SlotStatus.FINISHED
        assert ticks[-1] < NOW + 4

    def test_the_queue_is_asked_once_an_interval_and_the_history_only_for_a_lost_job(self, world: World) -> None:
        for _ in range(10):
            world.tick(after=POLL_S / 10)
        assert world.cluster.asked == ["queue", "queue"], "once, and once more soon after the submission"
        world.cluster.rows.clear()
        world.tick(after=POLL_S)
        assert world.cluster.asked == ["queue", "queue", "queue", "history"]

    def test_an_answer_from_before_the_clock_was_set_back_is_not_used(self, world: World) -> None:
        world.tick()
        world.controller._monotonic = lambda: NOW
        world.tick(after=-3600)
        assert world.cluster.asked == ["queue", "queue"]

    def test_an_outage_of_hours_changes_nothing(self, world: World) -> None:
        world.tick()
        world.cluster.error, world.cluster.rows = "slurmctld is down", {}
        for _ in range(20):
            world.tick(after=600)
        assert world.states() == [SubmissionState.SUBMITTED]
        assert world.ledger.blind_error == "slurmctld is down"


class TestStopping:
    @staticmethod
    def hand_over_file(world: World) -> Path:
        return world.run_dir.job(world.cluster.submitted[-1]) / "hand-over"

    def test_a_stop_asks_waits_and_then_cancels(self, world: World) -> None:
        world.tick()
        world.job_claims()
        world.cluster.show(str(world.run_dir.job(world.cluster.submitted[0])), JobState.RUNNING)
        world.tick(after=POLL_S)
        write_control(world.run_dir, "stop", now=world.time, by="stop", grace_s=100)
        world.tick(after=1)
        assert self.hand_over_file(world).exists()
        assert world.cluster.signalled == [("wake", ["101"])]
        world.tick(after=99)
        assert world.cluster.signalled[1:] == []
        world.tick(after=2)
        assert world.cluster.signalled[1:] == [("cancel", ["101"])]
        assert not world.controller.over

    def test_a_stop_is_over_when_the_job_has_handed_over(self, world: World) -> None:
        world.tick()
        world.job_claims(exit_code=75)
        write_control(world.run_dir, "stop", now=world.time, by="stop", grace_s=100)
        world.tick(after=1)
        assert world.controller.over
        assert len(world.cluster.submitted) == 1
        assert world.ledger.control == 1

    def test_start_after_stop_goes_on_with_the_next_attempt(self, world: World) -> None:
        world.tick()
        world.job_claims(exit_code=75)
        write_control(world.run_dir, "stop", now=world.time, by="stop", grace_s=100)
        world.tick(after=1)
        write_control(world.run_dir, "run", now=world.time, by="start")
        world.tick(after=1)
        assert world.cluster.submitted[-1].startswith("s0-a1-")


class TestOwnership:
    def test_an_owner_that_was_replaced_neither_submits_nor_writes(self, world: World) -> None:
        record = json.loads((world.run_dir.lease / "0").read_text())
        create_exclusive(world.run_dir.lease / "1", to_json({**record, "epoch": 1}))
        with refused("lease.taken"):
            world.tick()
        assert world.cluster.submitted == []
        assert not world.run_dir.ledger(0).exists()

    def test_an_owner_that_was_replaced_leaves_the_holds_of_queued_successors_alone(self, tmp_path: Path) -> None:
        world = World(tmp_path, relay={"queue_ahead": True})
        world.tick()
        hold = world.run_dir.slot(0) / "hold"
        assert not hold.exists()
        write_control(world.run_dir, "stop", now=world.time, by="stop")
        record = json.loads((world.run_dir.lease / "0").read_text())
        create_exclusive(world.run_dir.lease / "1", to_json({**record, "epoch": 1}))
        with refused("lease.taken"):
            world.tick()
        assert not hold.exists()

    def test_an_owner_replaced_between_intent_and_submission_does_not_submit(self, world: World) -> None:
        save = world.controller._save

        def saved_and_then_replaced() -> None:
            save()
            record = json.loads((world.run_dir.lease / "0").read_text())
            create_exclusive(world.run_dir.lease / "1", to_json({**record, "epoch": 1}))

        world.controller._save = saved_and_then_replaced  # type: ignore[method-assign]
        with refused("lease.taken"):
            world.tick()
        assert world.cluster.submitted == []

    def test_a_new_controller_goes_on_from_what_the_old_one_wrote(self, world: World) -> None:
        world.tick()
        world.controller = world.new_controller()
        world.tick(after=POLL_S)
        assert len(world.cluster.submitted) == 1

    def test_a_new_controller_without_its_ledger_finds_its_jobs_in_the_queue(self, world: World) -> None:
        world.tick()
        world.run_dir.ledger(0).unlink()
        world.controller = world.new_controller()
        world.tick(after=POLL_S)
        assert len(world.cluster.submitted) == 1
        assert world.slot.attempts[0].submissions[0].note == "adopted"

    def test_it_beats_often_enough_whatever_the_poll_interval(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.controller._poll_s = 3600.0
        beats: list[tuple[int, float]] = []

        def shown() -> None:
            beats.append((world.ledger.beat, world.time))

        world.controller.loop(interrupted=lambda: world.time > NOW + 5 * BEAT_S, shown=shown)
        changes = [at for (before, _), (after, at) in pairwise(beats) if before != after]
        assert max(b - a for a, b in pairwise([NOW, *changes])) <= BEAT_S + 1

    def test_it_beats_between_submissions_that_each_take_long(self, tmp_path: Path) -> None:
        world = World(tmp_path, slots=12)
        beats: list[tuple[int, float]] = []

        def slow() -> None:
            world.time += 45.0
            beats.append((world.ledger.beat, world.time))

        world.cluster.before_submit = slow
        world.tick()
        changes = [at for (before, _), (after, at) in pairwise(beats) if before != after]
        assert len(beats) == 12
        assert max(b - a for a, b in pairwise([NOW, *changes, world.time])) < TTL_S

    def test_a_full_disk_is_told_and_outlived(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        tick = world.controller.tick
        failures = iter([True, True, False])

        def sometimes() -> None:
            if next(failures, False):
                raise OSError(28, "No space left on device", "ledger-0.json")
            tick()
            world.job_claims(exit_code=0)

        monkeypatch.setattr(world.controller, "tick", sometimes)
        world.controller.loop(interrupted=lambda: world.time > NOW + 600, shown=lambda: None)
        assert any("No space left on device" in line for line in world.said)
        assert world.slot.status is SlotStatus.FINISHED
