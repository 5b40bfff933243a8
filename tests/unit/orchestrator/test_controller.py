from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from builders import NOW
from one_run import POLL_S, World
from refused import refused

from anchorleg.files import create_exclusive, to_json
from orchestrator.controller import BEAT_S, FIRST_LOOK_S
from orchestrator.decisions.edits import TEMPORARY_WAIT_S
from orchestrator.decisions.models import SlotStatus, SubmissionState, Verdict
from orchestrator.executors.base import (
    JobState,
    Uncertain,
)
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
        assert len([line for line in world.said if " ended: " in line]) == 1
        assert [path.name for path in world.run_dir.jobs.iterdir()] == world.cluster.submitted
        world.run = load_run(world.run_dir)
        world.controller = world.new_controller()
        world.tick()
        assert len(world.cluster.submitted) == 2

    @pytest.mark.long
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

    def test_a_stop_is_heard_between_two_submissions(self, tmp_path: Path) -> None:
        world = World(tmp_path, slots=5)
        world.cluster.before_submit = lambda: write_control(world.run_dir, "stop", now=NOW, by="stop")
        world.tick()
        assert len(world.cluster.submitted) == 1
        world.tick(after=TEMPORARY_WAIT_S)
        assert len(world.cluster.submitted) == 1


class TestEnds:
    def test_the_end_of_the_program_ends_the_loop(self, world: World) -> None:
        world.tick()
        world.job_claims(exit_code=0)
        world.controller.loop(interrupted=lambda: False, shown=lambda: None)
        assert world.slot.status is SlotStatus.FINISHED

    def test_a_job_that_has_begun_is_noticed_at_once_and_the_queue_is_asked_of_it(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.controller._poll_s = 3600.0
        world.tick()
        world.tick(after=FIRST_LOOK_S)
        looks: list[tuple[bool, bool]] = []

        def shown() -> None:
            (attempt,) = world.slot.attempts
            looks.append((attempt.claimed_by is not None, attempt.submissions[0].was_seen(JobState.RUNNING)))
            if len(looks) == 1:
                world.job_claims()
                world.job_shows(JobState.RUNNING)

        begun = world.time
        world.controller.loop(interrupted=lambda: world.time > begun + 2 * FIRST_LOOK_S, shown=shown)
        assert list(dict.fromkeys(looks)) == [(False, False), (True, False), (True, True)]


class TestOwnership:
    def test_an_owner_that_was_replaced_neither_submits_nor_writes(self, world: World) -> None:
        record = json.loads((world.run_dir.lease / "0").read_text())
        create_exclusive(world.run_dir.lease / "1", to_json({**record, "epoch": 1}))
        with refused("lease.taken"):
            world.tick()
        assert world.cluster.submitted == []
        assert not world.run_dir.ledger(0).exists()

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
