"""Queued successors on a real Slurm: no wait between two jobs, and nothing that runs when it must not."""

from __future__ import annotations

import pytest
from relay import PATIENT, PROGRAMS, NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import on_slurm, rows_of

pytestmark = pytest.mark.slurm

#: `orchestrator` that looks again after 2 s, not a minute, where Slurm had no room.
HURRIED = (str(PROGRAMS / "killed.py"), "never", "0")


def queued(cluster: SlurmCluster, relay: Relay) -> list[int]:
    """The jobs that wait for another one."""
    return [row.job_id for row in rows_of(cluster, relay) if row.state == "PENDING" and row.reason == "Dependency"]


def behind(new_relay: NewRelay, cluster: SlurmCluster, *, own_code: bool = False) -> Relay:
    """A run of 60 steps with one job, held at step 20, and its successor in the queue. `own_code`: hearts beat fast."""
    relay = on_slurm(
        new_relay, cluster, total=60, held_at=20, own_code=own_code, relay={**PATIENT, "queue_ahead": True}
    )
    if own_code:
        shim = relay.folder / "code" / "orchestrator" / "shim.py"
        shim.write_text(shim.read_text().replace("HEARTBEAT_S = 30.0", "HEARTBEAT_S = 1.0"))
    relay.spawn("start")
    relay.wait_for_step(20)
    cluster.wait_for(lambda: len(queued(cluster, relay)) == 1, "the successor")
    return relay


@pytest.mark.long
def test_each_job_is_queued_behind_the_one_before_it(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1)
    relay = behind(new_relay, slurm)
    for attempt, step in ((1, 30), (2, 40)):
        relay.hold_at(step)
        relay.hand_over()
        relay.wait_for(lambda n=attempt: relay.attempts() == [*range(n + 1)], "the next job")
        relay.wait_for_step(step)
        slurm.wait_for(lambda: len(queued(slurm, relay)) == 1, "its successor")
    relay.release()

    assert relay.ended(relay.children[-1]) == 0, relay.output()
    relay.assert_exactly_once(60)
    attempts = relay.attempts(0)
    assert attempts == [0, 1, 2]
    afters = [event.get("after") for event in relay.events("submission")]
    jobs = [relay.read("claim", attempt)["job_id"] for attempt in attempts]
    assert afters[0] is None
    assert afters[1 : len(jobs)] == jobs[:-1]
    slurm.wait_for(lambda: not rows_of(slurm, relay), "an empty queue")


@pytest.mark.long
def test_a_successor_whose_dependency_was_taken_off_does_not_work_beside_the_job_before_it(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=2)
    relay = behind(new_relay, slurm, own_code=True)
    (successor,) = queued(slurm, relay)

    slurm.ask("scontrol", "update", f"jobid={successor}", "dependency=")  # as an administrator does

    relay.wait_for(lambda: relay.duplicates(1), "the successor's word")
    assert [one["job_id"] for one in relay.duplicates(1)] == [str(successor)]
    assert relay.duplicates(1)[0]["unneeded"]
    assert relay.attempts() == [0]
    relay.release()
    assert relay.ended(relay.children[-1]) == 0, relay.output()
    relay.assert_exactly_once(60)


@pytest.mark.long
def test_a_stop_takes_the_successor_out_and_keeps_everything(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1)
    relay = behind(new_relay, slurm)

    assert relay.run("stop").code == 0

    slurm.wait_for(lambda: not rows_of(slurm, relay), "an empty queue")
    assert relay.attempts(0) == [0]
    assert relay.read("exit.json", 0)["code"] == 75
    assert (relay.run_dir / "slots" / "0" / "hold").exists()


@pytest.mark.long
def test_a_cancel_of_the_running_job_pauses_although_another_one_is_queued(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1)
    relay = behind(new_relay, slurm)

    slurm.ask("scancel", relay.read("claim", 0)["job_id"])

    assert relay.ended(relay.children[-1]) == 12, relay.output()
    assert relay.status()["slots"][0]["state"] == "paused"
    slurm.wait_for(lambda: not rows_of(slurm, relay), "an empty queue")
    assert not (relay.attempt_dir(1) / "claim").exists()
