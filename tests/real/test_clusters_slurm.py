"""`slurm.clusters`: a site of two clusters with one slurmdbd, whose job ids may be the same."""

from __future__ import annotations

import pytest
from relay import NewRelay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import on_slurm, rows_of

from orchestrator.executors.base import JobState
from orchestrator.executors.slurm import SlurmExecutor

pytestmark = [pytest.mark.slurm, pytest.mark.long]

TOTAL = 40


def two_clusters(private_slurm: PrivateSlurm) -> tuple[SlurmCluster, SlurmCluster]:
    """`test` and `second`, a node with room for one job each."""
    # Each `sbatch -M` tries both clusters, and a trial uses up a number: so both give their first jobs number 3.
    first = private_slurm(nodes=1, cpus=1, accounting=True, overrides={"FirstJobId": "2"})
    return first, private_slurm(nodes=1, cpus=1, accounting=True, beside=first)


def test_each_job_goes_to_the_cluster_that_starts_it_first(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    first, second = two_clusters(private_slurm)
    limits = {"clusters": ["test", "second"]}
    relay = on_slurm(new_relay, first, total=TOTAL, held_at=10, slots=2, slurm=limits)
    probed = relay.run("doctor", "--probe")
    assert "ran on n1" in probed.out, probed.out + probed.words
    controller = relay.spawn("start")
    for slot in (0, 1):
        relay.wait_for_step(10, slot)

    at = {cluster: rows_of(cluster, relay) for cluster in (first, second)}
    assert [len(rows) for rows in at.values()] == [1, 1]
    ids = {f"{rows[0].job_id};{name}" for name, rows in zip(("test", "second"), at.values(), strict=True)}
    assert {relay.read("claim", 0, slot)["job_id"] for slot in (0, 1)} == ids
    assert {slot["job_id"] for slot in relay.status()["slots"]} == ids

    for slot in (0, 1):
        relay.hand_over(slot)
        relay.wait_for(lambda slot=slot: 1 in relay.attempts(slot), "the next job")
    assert relay.run("stop").code == 0  # each cluster is asked to wake its own job
    assert relay.ended(controller) == 0, relay.output()
    relay.release()
    assert relay.run("start").code == 0
    for slot in (0, 1):
        relay.assert_exactly_once(TOTAL, slot)
    ended = [event["verdict"] for event in relay.events("ended")]
    assert set(ended) == {"handed over", "finished"}


def test_a_job_that_is_cancelled_shares_its_number_with_one_that_is_not(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    first, second = two_clusters(private_slurm)
    relay = on_slurm(new_relay, first, total=TOTAL, held_at=10, slots=2, slurm={"clusters": ["test", "second"]})
    relay.spawn("start")
    for slot in (0, 1):
        relay.wait_for_step(10, slot)
    [number], [same] = ([row.job_id for row in rows_of(cluster, relay)] for cluster in (first, second))
    assert number == same

    jobs = SlurmExecutor(relay.run_dir / "jobs", first.env(), clusters=["test", "second"])
    assert jobs.cancel([f"{number};second"]) is None
    second.wait_until_empty()

    assert [row.state for row in rows_of(first, relay)] == ["RUNNING"]
    assert sorted((row.job_id, row.state) for row in jobs.poll().rows) == [
        (f"{number};second", JobState.ENDED), (f"{number};test", JobState.RUNNING),
    ]  # fmt: skip
