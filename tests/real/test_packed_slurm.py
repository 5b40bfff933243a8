"""Several slots in one Slurm job (`slurm.slots_per_job`): each with its own claim, checkpoint, heart and end."""

from __future__ import annotations

import subprocess

import pytest
from relay import AT_ONCE, NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import ever, on_slurm, rows_of

pytestmark = [pytest.mark.slurm, pytest.mark.long]

TWO = {"slots_per_job": 2, "cpus_per_task": 2}


def claimed_in(relay: Relay, slot: int, attempt: int = 0) -> int:
    """The Slurm job in which an attempt runs."""
    return int(relay.read("claim", attempt, slot)["job_id"].partition(".")[0])


def packed(new_relay: NewRelay, slurm: SlurmCluster, **settings: object) -> Relay:
    section = {**TWO, **settings.pop("section", {})}  # type: ignore[dict-item]
    return on_slurm(new_relay, slurm, slurm=section, relay=AT_ONCE, **settings)


def started(relay: Relay, slots: int) -> subprocess.Popen[str]:
    """Its controller, once every slot is held at step 10."""
    controller = relay.spawn("start")
    for slot in range(slots):
        relay.wait_for_step(10, slot)
    return controller


def test_slots_share_jobs_and_each_step_is_done_once(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=2)
    relay = packed(new_relay, slurm, total=40, slots=4, held_at=10)
    controller = started(relay, 4)
    assert len(rows_of(slurm, relay)) == 2
    jobs = [claimed_in(relay, slot) for slot in range(4)]
    assert sorted(map(jobs.count, set(jobs))) == [2, 2]
    assert [slot["state"] for slot in relay.status()["slots"]] == ["running"] * 4
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    for slot in range(4):
        relay.assert_exactly_once(40, slot)
    slurm.wait_for(lambda: not rows_of(slurm, relay), "the jobs' end")
    assert [row.state for row in ever(slurm, relay)] == ["COMPLETED", "COMPLETED"]


def test_a_slot_that_ends_makes_room_in_its_job_for_the_next(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1)
    relay = packed(
        new_relay, slurm, slots=3, section={"max_jobs": 1}, command=["python3", "./count.py", "@{total}"],
        params={"total": 20}, slot_overrides={"0": {"total": 60}}, held_at=20,
    )  # fmt: skip
    controller = relay.spawn("start")
    relay.wait_for_step(20)
    relay.wait_for(
        lambda: [slot["state"] for slot in relay.status()["slots"]][1:] == ["finished"] * 2, "the short ones"
    )
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(60, 0)
    relay.assert_exactly_once(20, 1)
    relay.assert_exactly_once(20, 2)
    assert len({claimed_in(relay, slot) for slot in range(3)}) == 1
    assert len(ever(slurm, relay)) == 1


def test_one_is_paused_and_the_other_goes_on_then_all_stop_and_go_on(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1)
    relay = packed(new_relay, slurm, total=60, slots=2, held_at=10)
    controller = started(relay, 2)

    assert relay.run("pause", "0").code == 0
    relay.wait_for((relay.attempt_dir(0, 0) / "exit.json").exists, "the end of slot 0's job")
    relay.wait_for(lambda: relay.status()["slots"][0]["state"] == "paused", "the pause")
    assert relay.status()["slots"][1]["state"] == "running"
    assert len(rows_of(slurm, relay)) == 1
    assert relay.run("stop").code == 0
    assert relay.ended(controller) == 0, relay.output()
    slurm.wait_for(lambda: not rows_of(slurm, relay), "the job's end")
    relay.release()
    assert relay.run("resume", "0").code == 0
    assert relay.run("start").code == 0
    for slot in range(2):
        relay.assert_exactly_once(60, slot)


def test_a_persons_scancel_saves_and_pauses_all_of_the_job(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1)
    relay = packed(new_relay, slurm, total=60, slots=2, held_at=10)
    controller = started(relay, 2)
    [job] = rows_of(slurm, relay)

    slurm.ask("scancel", str(job.job_id))

    assert relay.ended(controller) == 12, relay.output()
    assert [slot["state"] for slot in relay.status()["slots"]] == ["paused"] * 2
    relay.release()
    assert relay.run("start").code == 0
    for slot in range(2):
        relay.assert_exactly_once(60, slot)


def test_a_node_that_dies_ends_all_its_slots(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=2, overrides={"SlurmdTimeout": "5"})
    relay = packed(new_relay, slurm, total=60, slots=2, held_at=10)
    controller = started(relay, 2)
    [job] = rows_of(slurm, relay)

    slurm.kill_node(job.node)
    slurm.wait_for_state(job.job_id, "NODE_FAIL")
    for slot in range(2):
        relay.wait_for(lambda slot=slot: 1 in relay.attempts(slot), f"the next job of slot {slot}")  # type: ignore[misc]
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    assert claimed_in(relay, 0, 1) == claimed_in(relay, 1, 1) != job.job_id
    assert [relay.read("progress.json", 1, slot)["step"] for slot in range(2)] == [60, 60]
    verdicts = [event["verdict"] for event in relay.events("ended")]
    assert sorted(verdicts) == ["finished", "finished", "node failed", "node failed"]
