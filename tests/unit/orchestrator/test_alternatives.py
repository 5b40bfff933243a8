"""`slurm.alternatives`: where a job is submitted, and when a waiting one is moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from one_run import POLL_S, World

from orchestrator.config import parse_config
from orchestrator.decisions.models import Raised, SlotStatus, Verdict
from orchestrator.decisions.plan import MOVE_AFTER_S, MOVED
from orchestrator.executors.base import JobState
from orchestrator.executors.slurm_text import expected_start
from orchestrator.run.submission import places_of
from orchestrator.sections import SlurmSection

SLURM: dict[str, Any] = {
    "partition": "long", "mem": "8G", "time_limit": "4:00:00",
    "alternatives": [{"partition": "short", "time_limit": "1:00:00"}, {"partition": "big", "qos": "free", "mem": "4G"}],
}  # fmt: skip


def section(**slurm: Any) -> SlurmSection:
    return parse_config({"command": ["true"], "slurm": slurm}, "c.json").slurm


def test_each_place_names_what_differs_and_partitions_alone_are_a_list() -> None:
    assert places_of(section(**SLURM)) == (
        (),
        ("--partition=short", "--time=1:00:00"),
        ("--partition=big", "--qos=free", "--mem=4G"),
    )
    only = [{"partition": "b"}, {"partition": "c"}]
    assert places_of(section(partition="a", alternatives=only)) == (("--partition=a,b,c",),)
    assert places_of(section(alternatives=only)) == ((), ("--partition=b",), ("--partition=c",))
    assert places_of(section(partition="a")) == ()


def test_what_a_slot_was_raised_to_counts_in_each_place() -> None:
    raised = Raised(mem_mb=6 * 1024, time_limit=2 * 3600)
    assert places_of(section(**SLURM), raised) == (
        (),
        ("--partition=short", "--time=2:00:00"),
        ("--partition=big", "--qos=free", "--mem=6G"),
    )


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("sbatch: Job 7 to start at 1760086400 using 1 processors on nodes n1 in partition a\n", 1760086400.0),
        ("sbatch: Job 7 to start at 1760086400 a using 1 processors on nodes n1 in partition a\n", 1760086400.0),
        ("sbatch: Job 7 to start at 2025-10-10T08:53:20 using 1 processors on nodes n1\n", None),
        ("allocation failure: Requested node configuration is not available\n", None),
    ],
)
def test_the_expected_start_is_read(said: str, at: float | None) -> None:
    assert expected_start(said) == at


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, slurm=SLURM)


def waited(world: World, seconds: float) -> None:
    """Ticks at each poll, of a queue in which the newest job waits."""
    end = world.time + seconds
    while world.time < end:
        world.job_shows(JobState.PENDING, len(world.cluster.submitted) - 1)
        world.tick(after=POLL_S)


def test_a_job_that_waits_moves_to_where_it_would_begin_at_once(world: World) -> None:
    world.tick()
    assert world.cluster.requests[0].places == places_of(section(**SLURM))
    world.cluster.free_place = 0
    waited(world, 2 * MOVE_AFTER_S)
    assert world.cluster.signalled == [], "it is there already"
    world.cluster.free_place = 2

    waited(world, 11 * POLL_S)

    assert world.cluster.signalled == [("cancel waiting", ["101"])]
    assert len(world.cluster.submitted) == 1, "never two at once"
    world.job_shows(JobState.ENDED, raw="CANCELLED")
    world.tick(after=POLL_S)
    world.tick(after=POLL_S)
    assert [attempt.cause for attempt in world.slot.attempts] == [MOVED, ""]
    assert "--partition=big --qos=free" in world.said[-1]
    [moved] = world.slot.attempts[-1].live
    assert (moved.place, world.slot.status, world.slot.failures) == (2, SlotStatus.ACTIVE, 0)


def test_after_each_move_it_waits_twice_as_long(world: World) -> None:
    world.tick()
    for which, place in enumerate((1, 2, 1)):
        world.cluster.free_place = place
        before = world.time
        while len(world.cluster.signalled) == which:
            waited(world, POLL_S)
        assert world.time - before >= MOVE_AFTER_S * 2**which
        world.job_shows(JobState.ENDED, which, raw="CANCELLED")
        world.tick(after=POLL_S)
        world.tick(after=POLL_S)


def test_a_job_that_began_before_its_move_is_not_taken_for_moved(world: World) -> None:
    world.tick()
    world.cluster.free_place = 1
    waited(world, 2 * MOVE_AFTER_S)
    assert world.cluster.signalled != []

    world.job_claims()
    world.job_shows(JobState.RUNNING)
    world.tick(after=POLL_S)

    [running] = world.slot.attempts[-1].live
    assert (running.cancelled_at, running.cancelled_for) == (None, "")
    world.job_shows(JobState.ENDED, raw="CANCELLED")
    world.job_claims(exit_code=75, asked="SIGTERM")
    world.tick(after=POLL_S)
    assert (world.slot.status, world.slot.attempts[-1].verdict) == (SlotStatus.PAUSED, Verdict.CANCELLED)


def test_a_job_that_has_begun_is_not_moved_although_the_queue_still_shows_it_as_waiting(world: World) -> None:
    world.tick()
    world.job_claims()
    world.cluster.free_place = 1
    waited(world, 2 * MOVE_AFTER_S)
    assert world.cluster.signalled == []
