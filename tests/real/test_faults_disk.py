"""The disk of the run folder fills up while jobs of a real Slurm write to it: what is shown, and what goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from full_disk import fill
from relay import NewRelay
from slurm_cluster import SlurmCluster
from slurm_relay import on_slurm

pytestmark = pytest.mark.slurm

#: Whether the job's error output found room, nobody can say before.
CAUSES = ("no space left on the disk", "it left no word, and the disk is full")


def test_jobs_that_died_of_it_are_not_said_to_run_and_go_on_when_there_is_room(
    slurm: SlurmCluster, new_relay: NewRelay, small_disk: Path
) -> None:
    relay = on_slurm(new_relay, slurm, total=60, slots=2, run_dir=f"{small_disk}/run", held_at=10)
    controller = relay.spawn("start")
    for slot in (0, 1):
        relay.wait_for_step(10, slot)
    relay.wait_for(lambda: {slot["state"] for slot in relay.status()["slots"]} == {"running"}, "status to show them")

    ballast = small_disk / "ballast"
    # Again where a file that was being replaced has given its room back.
    relay.wait_for(lambda: fill(small_disk) and "trying again" in relay.output(), "the controller to find no room")
    relay.release()  # each one's next report finds no room
    relay.wait_for(
        lambda: {slot["state"] for slot in relay.status()["slots"]} == {"waiting"}, "status to see for itself"
    )

    shown, told = relay.status(), relay.run("status").out
    assert [slot["last_verdict"] for slot in shown["slots"]] == ["no room", "no room"]
    assert {slot["last_cause"] for slot in shown["slots"]} <= set(CAUSES)
    assert "the disk is full (" in told
    assert "steps/s" not in told
    explained = relay.run("explain", "1").out.splitlines()
    assert "slot 1 is waiting" in explained[0]
    assert sum("ended: no room" in line for line in explained) == 1
    assert len(slurm.squeue()) == 0  # what cannot be written down is not submitted

    ballast.unlink()
    assert relay.ended(controller) == 0, relay.output()
    assert {slot["state"] for slot in relay.status()["slots"]} == {"finished"}
