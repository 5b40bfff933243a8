"""kill -9 of a controller whose jobs are real Slurm's: a sample of all its writes and calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing import killed_at, killed_first_at
from relay import NewRelay
from slurm_cluster import SlurmCluster
from slurm_relay import ever, on_slurm

from orchestrator.decisions.models import parse_token

pytestmark = [pytest.mark.slurm, pytest.mark.long]

#: Every so many-th call; the start differs, so that the tests together meet more of them.
EVERY = 9


@pytest.mark.parametrize(("share", "again"), [(2, 0), (5, 0), (8, 0), (4, 3)])
def test_killed_at_calls_spread_over_a_whole_run_it_goes_on_exactly_once(
    new_relay: NewRelay, slurm: SlurmCluster, share: int, again: int
) -> None:
    relay = on_slurm(new_relay, slurm, total=24, slots=2, training={"max_runtime_seconds": 0.6})

    places = killed_at(relay, share, EVERY, again)

    assert len(places) >= 6


@pytest.mark.parametrize("place", ["submit", "submit, after it"])
def test_killed_around_an_sbatch_each_attempt_is_one_job(new_relay: NewRelay, slurm: SlurmCluster, place: str) -> None:
    relay = on_slurm(new_relay, slurm, total=24, slots=2)

    killed_first_at(relay, place)

    # The claim makes a second job of an attempt harmless; there must be none all the same.
    jobs = [parse_token(Path(row.work_dir).name) for row in ever(slurm, relay)]
    assert jobs
    assert len(set(jobs)) == len(jobs), jobs


@pytest.mark.parametrize("share", [3, 6])
def test_killed_at_calls_while_slots_share_jobs_that_may_go_to_two_places(
    new_relay: NewRelay, slurm: SlurmCluster, share: int
) -> None:
    together = {"slots_per_job": 2, "cpus_per_task": 2, "alternatives": [{"time_limit": "20"}]}
    relay = on_slurm(new_relay, slurm, total=24, slots=2, training={"max_runtime_seconds": 0.6}, slurm=together)

    places = killed_at(relay, share, EVERY)

    assert len(places) >= 10
