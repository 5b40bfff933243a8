"""What comes before a run's first jobs: another run (`after`), or one slot that is seen to work (`--probe-first`)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, a_run, a_slot, no_code
from one_run import POLL_S, World
from refused import refused

from orchestrator.config import parse_config
from orchestrator.decisions.models import SlotStatus
from orchestrator.decisions.plan import PROBE_STEPS
from orchestrator.errors import UnknownRun
from orchestrator.executors.base import JobState
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.ledger import save_ledger
from orchestrator.run.rundir import RunDir

TOY: dict[str, Any] = {"executor": "local", "command": ["true"]}


def another_run(folder: Path, *statuses: SlotStatus) -> RunDir:
    """A run called `first`, whose slots are so."""
    run_dir = RunDir(folder / "first")
    prepare_folder(run_dir)
    config = parse_config({**TOY, "run_name": "first", "slots": max(1, len(statuses))}, "c.json")
    run = begin(config, folder / "c.json", run_dir, {"PATH": os.environ["PATH"]}, NOW, fix=no_code)
    slots = [a_slot(index, status=status) for index, status in enumerate(statuses)]
    if statuses:
        save_ledger(run_dir, a_run(*slots, run_id=run.run_id), NOW)
    return run_dir


def progress(world: World, step: int, attempt: int = 0, slot: int = 0) -> None:
    path = world.run_dir.attempt(slot, attempt) / "progress.json"
    path.write_text(json.dumps({"step": step, "total": 10**6, "checkpoint_step": 0}))


@pytest.mark.parametrize(
    ("statuses", "waits"),
    [
        ((), "0 of 1 slots"),
        ((SlotStatus.FINISHED, SlotStatus.ACTIVE), "1 of 2 slots"),
        ((SlotStatus.FINISHED, SlotStatus.FAILED), "1 of 2 slots"),
        ((SlotStatus.FINISHED, SlotStatus.DROPPED), ""),
    ],
)
def test_no_job_is_submitted_before_the_other_run_has_finished(
    tmp_path: Path, statuses: tuple[SlotStatus, ...], waits: str
) -> None:
    first = another_run(tmp_path, *statuses)
    world = World(tmp_path / "second", slots=2, after=str(first.path))

    world.tick()

    assert len(world.cluster.submitted) == (0 if waits else 2)
    assert [waits in slot.why for slot in world.ledger.slots] == [True, True]
    assert not world.controller.over


def test_once_it_has_begun_it_never_waits_for_the_other_again(tmp_path: Path) -> None:
    first = another_run(tmp_path, SlotStatus.FINISHED)
    world = World(tmp_path / "second", after=str(first.path))
    world.tick()
    world.job_claims(exit_code=75)
    world.job_shows(JobState.ENDED, raw="COMPLETED")
    another = a_run(a_slot(0), run_id=json.loads(first.run_file.read_text())["run_id"])
    save_ledger(first, another, NOW)

    world.tick(after=POLL_S)
    world.tick(after=POLL_S)

    assert len(world.cluster.submitted) == 2


def test_another_run_that_is_not_there_or_is_this_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownRun):
        World(tmp_path / "a", after="nowhere")
    first = another_run(tmp_path)
    config = parse_config({**TOY, "run_name": "first", "after": str(first.path)}, "c.json")
    with refused("after.itself"):
        begin(config, tmp_path / "c.json", first, {}, NOW, fix=no_code)


def test_one_slot_proves_itself_and_the_others_follow(tmp_path: Path) -> None:
    world = World(tmp_path, slots=3, queue={"probe_first": True})
    world.tick()
    assert len(world.cluster.submitted) == 1
    assert "20 steps" in world.ledger.slots[1].why
    world.job_claims()
    world.job_shows(JobState.RUNNING)
    progress(world, PROBE_STEPS - 1)
    world.tick(after=POLL_S)
    assert len(world.cluster.submitted) == 1

    progress(world, PROBE_STEPS)
    world.tick(after=POLL_S)

    assert len(world.cluster.submitted) == 3
    assert all("steps" not in slot.why for slot in world.ledger.slots)


def test_where_the_first_fails_for_good_the_run_is_over_and_no_other_job_was_lost(tmp_path: Path) -> None:
    world = World(tmp_path, slots=3, queue={"probe_first": True}, relay={"failure_budget": 1})
    world.tick()
    world.job_claims(exit_code=1)
    world.job_shows(JobState.ENDED, raw="FAILED")

    world.tick(after=POLL_S)
    world.tick(after=POLL_S)

    assert [slot.status for slot in world.ledger.slots] == [SlotStatus.FAILED, SlotStatus.ACTIVE, SlotStatus.ACTIVE]
    assert len(world.cluster.submitted) == 1
    assert world.controller.over
