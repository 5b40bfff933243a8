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
CAUSES = ("no space left on the disk", "it left no message, and the disk is full")


@pytest.mark.long
def test_screens_say_that_they_are_old_and_what_died_of_it_goes_on_when_there_is_room(
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
    relay.wait_for(lambda: relay.status()["stale"] is not None, "status to say that the ledger is old")
    relay.wait_for(lambda: len(slurm.squeue()) == 0, "the jobs to die of it")

    assert relay.status()["stale"]["free_bytes"] < 1 << 16
    assert "the disk is full (" in relay.run("status").out
    assert len(slurm.squeue()) == 0  # what cannot be written down is not submitted

    ballast.unlink()
    assert relay.ended(controller) == 0, relay.output()
    assert {slot["state"] for slot in relay.status()["slots"]} == {"finished"}
    for slot in ("0", "1"):
        told = relay.run("explain", slot).out.splitlines()
        assert sum("ended: no room" in line and any(cause in line for cause in CAUSES) for line in told) == 1, told
