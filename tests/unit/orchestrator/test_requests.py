from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from one_run import POLL_S, World

from anchorleg.job import candidates_before
from anchorleg.rollback import rollbacks
from orchestrator.controller import Controller
from orchestrator.decisions.models import SlotStatus, parse_token
from orchestrator.executors.base import JobState
from orchestrator.hosts.asking import add_experiments, ask_slots, experiments_of, roll_back_slots
from orchestrator.run.ledger import read_events
from orchestrator.run.rundir import ask, load_run


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Four experiments, two places."""
    return World(tmp_path, experiments={"seed": [0, 1, 2, 3]}, slurm={"max_jobs": 2}, params={"rate": 1})


def asked(world: World, kind: Any, *words: str, priority: int | None = None) -> str:
    return ask_slots(world.run_dir, kind, words, priority)


def slots_at_work(world: World) -> list[int]:
    return [(parse_token(token) or (-1, 0))[0] for token in world.cluster.submitted]


def running(world: World, which: int) -> None:
    world.job_claims(which=which)
    world.job_shows(JobState.RUNNING, which)


def over(world: World, which: int, code: int = 75) -> None:
    """The job at this place of the submissions hands over, and leaves the queue."""
    token = world.cluster.submitted[which]
    folder = world.run_dir.attempt(*(parse_token(token) or (0, 0)))
    if not (folder / "claim").exists():
        world.job_claims(which=which)
    who = json.loads((folder / "claim").read_text())
    (folder / "exit.json").write_text(json.dumps({**who, "at": world.time, "code": code, "asked": "deadline"}))
    world.job_shows(JobState.ENDED, which)


class TestGoingBack:
    def back(self, world: World, *words: str, to: int) -> str:
        return roll_back_slots(world.run_dir, words, to, why="", without="eve")

    def with_checkpoints(self, world: World, slot: int, *steps: int) -> Path:
        folder = world.run_dir.slot(slot)
        for step in steps:
            (folder / "attempts/0/checkpoints" / str(step)).mkdir(parents=True)
        (folder / "attempts/0/parent.json").write_text(json.dumps({"attempt": None, "step": 0, "checkpoint": None}))
        return folder

    def test_the_next_job_goes_on_from_the_newest_one_at_or_before_that_step(self, world: World) -> None:
        folder = self.with_checkpoints(world, 1, 100, 200)
        said = self.back(world, "1", to=150)
        assert ("step 100 of attempt 0" in said, "orchestrator pause 1" in said) == (True, False)
        assert [ref.step for ref in candidates_before(folder, 1)] == [100]
        assert [back.without for back in rollbacks(folder)] == ["eve"]
        world.tick()
        self.with_checkpoints(world, 0, 100)
        assert "orchestrator pause 0" in self.back(world, "0", to=100)


class TestRequests:
    def test_a_paused_slot_saves_gives_its_place_away_and_comes_back(self, world: World) -> None:
        world.tick()
        running(world, 0)
        world.tick(after=POLL_S)
        words = asked(world, "pause", "seed=0")
        assert words.startswith("slot seed=0 is paused: a running job saves and ends")
        world.tick(after=POLL_S)
        assert (world.slot.status, world.slot.on_request) == (SlotStatus.PAUSED, True)
        assert world.slot.attempts[0].asked_to_hand_over_at is not None
        over(world, 0)
        world.tick(after=POLL_S)
        assert slots_at_work(world) == [0, 1, 2]
        world.controller.reactivate()  # `start` was typed again
        assert world.controller.ledger.slots[0].status is SlotStatus.PAUSED
        asked(world, "resume", "0")
        asked(world, "drop", "1-3")
        world.tick(after=POLL_S)
        assert world.slot.status is SlotStatus.ACTIVE

    def test_each_is_taken_up_once_and_stands_in_the_history(self, world: World) -> None:
        asked(world, "drop", "3")
        world.tick()
        asked(world, "resume", "3")
        again = world.new_controller()
        again.tick()
        told = [(event["what"], event["slot"]) for event in read_events(world.run_dir) if event["kind"] == "requested"]
        assert told == [("drop", 3), ("resume", 3)]
        assert world.ledger.slots[3].status is SlotStatus.ACTIVE


class TestAdding:
    def test_an_added_experiment_is_a_slot_of_its_own_with_its_settings(self, world: World) -> None:
        world.tick()
        words = add_experiments(world.run_dir, experiments_of(["seed=9", 'kind="x"'], None, None, None))
        assert words.startswith("seed=9,kind=x is in the queue of toy.")
        asked(world, "drop", "seed=2", "seed=3")
        running(world, 0)
        world.tick(after=4 * 3600)
        over(world, 0)
        world.tick(after=POLL_S)
        assert slots_at_work(world) == [0, 1, 4]
        assert json.loads(world.run_dir.settings(4).read_text()) == {"rate": 1, "seed": 9, "kind": "x"}

    def test_a_controller_that_died_in_between_takes_it_up_once(self, world: World) -> None:
        add_experiments(world.run_dir, experiments_of(["seed=9"], None, None, None))
        world.controller._take_requests()  # and it is killed before its ledger is written
        again: Controller = world.new_controller()
        again.tick()
        assert len(world.ledger.slots) == 5
        again.tick()
        assert len(world.ledger.slots) == 5

    def test_two_commands_at_once_add_a_name_once_and_no_more_than_there_may_be(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for rate in (1, 2):  # both had looked before either of them asked
            row = {"name": "twin", "seed": 9, "rate": rate}
            ask(world.run_dir.disk, world.run_dir.requests, "add", now=world.time, experiments=(row,))
        assert [row["rate"] for row in load_run(world.run_dir).config.experiments or () if row["name"] == "twin"] == [1]
        monkeypatch.setattr("orchestrator.run.rundir.MOST_SLOTS", 6)
        for name in ("five", "six"):
            row = {"name": name, "seed": ord(name[0])}
            ask(world.run_dir.disk, world.run_dir.requests, "add", now=world.time, experiments=(row,))
        assert load_run(world.run_dir).config.slots == 6
