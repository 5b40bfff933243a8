"""`slurm.alternatives` on real Slurm: jobs go where they begin first, and move while they wait."""

from __future__ import annotations

import pytest
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import ever, on_slurm, rows_of, start_impatient

pytestmark = [pytest.mark.slurm, pytest.mark.long]

TOTAL = 40


def two_partitions(private_slurm: PrivateSlurm) -> SlurmCluster:
    """Partitions `one` and `two`, of a node each."""
    slurm = private_slurm(nodes=2)
    nodes = slurm.ask("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N").split()
    for name, node in zip(("one", "two"), nodes, strict=True):
        slurm.ask("scontrol", "create", f"PartitionName={name}", f"Nodes={node}", "State=UP", "MaxTime=INFINITE")
    return slurm


def occupied(slurm: SlurmCluster, partition: str, time_limit: str) -> int:
    """Somebody else's job on all of the partition's node."""
    job = slurm.submit("sleep 3000", f"--partition={partition}", "--exclusive", f"--time={time_limit}", "--mem=0")
    slurm.wait_for_state(job, "RUNNING")
    return job


def with_alternatives(new_relay: NewRelay, slurm: SlurmCluster, **more: object) -> Relay:
    where = {"partition": "one", "alternatives": [{"partition": "two", "time_limit": "20"}]}
    return on_slurm(new_relay, slurm, total=TOTAL, slurm=where, **more)


def partitions_of(slurm: SlurmCluster, relay: Relay) -> list[str]:
    """Of all jobs of the run, oldest first."""
    shown = slurm.ask("squeue", "-a", "-h", "-t", "all", "-o", "%i %P").splitlines()
    known = {int(job): partition for job, partition in (line.split() for line in shown)}
    return [known[row.job_id] for row in ever(slurm, relay)]


def test_a_job_goes_where_it_begins_first(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = two_partitions(private_slurm)
    occupied(slurm, "one", "60")
    relay = with_alternatives(new_relay, slurm)

    done = relay.run("start")

    assert done.code == 0, done.words
    relay.assert_exactly_once(TOTAL)
    assert partitions_of(slurm, relay) == ["two"]


def test_a_waiting_job_moves_when_another_place_is_free(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = two_partitions(private_slurm)
    occupied(slurm, "one", "60")
    other = occupied(slurm, "two", "600")
    relay = with_alternatives(new_relay, slurm)
    controller = start_impatient(relay, move=1.0)
    relay.wait_for(lambda: [row.state for row in rows_of(slurm, relay)] == ["PENDING"], "a waiting job")

    slurm.ask("scancel", str(other))

    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(TOTAL)
    assert partitions_of(slurm, relay) == ["one", "two"]
    assert [row.state for row in ever(slurm, relay)] == ["CANCELLED", "COMPLETED"]
    assert [event["why"] for event in relay.events("cancelled")] == ["it can begin at once in another place"]
