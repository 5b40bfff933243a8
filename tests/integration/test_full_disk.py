"""A run on a disk that fills up, so that its job dies and its controller cannot say so: what people are shown then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from full_disk import fill, fill_inodes
from relay import NewRelay, Relay

from orchestrator.decisions.verdicts import NO_INODES

#: Whether the job's error output found room, nobody can say before.
CAUSES = ("no space left on the disk", "it left no message, and the disk is full")


def slot_of(relay: Relay) -> dict[str, object]:
    return dict(relay.status()["slots"][0])


@pytest.mark.long
def test_the_screens_say_that_they_are_old_until_there_is_room(new_relay: NewRelay, small_disk: Path) -> None:
    relay = new_relay(total=60, run_dir=f"{small_disk}/run", held_at=10)
    controller = relay.spawn("start")
    relay.wait_for_step(10)
    relay.wait_for(lambda: slot_of(relay)["state"] == "running", "status to show it")

    ballast = fill(small_disk)
    relay.release()  # its next report finds no room
    relay.wait_for(lambda: relay.status()["stale"] is not None, "status to say that it is old")

    assert relay.status()["stale"]["free_bytes"] < 1 << 16
    for command in (("status",), ("explain", "0"), ("goodput",)):
        assert "the disk is full (" in relay.run(*command).out

    ballast.unlink()
    assert relay.ended(controller) == 0, relay.output()
    assert relay.counted() == 60
    after = json.loads(relay.run("status", "--json").out)
    assert (after["state"], after["stale"]) == ("finished", None)
    assert any(cause in relay.run("explain", "0").out for cause in CAUSES)


@pytest.mark.long
def test_a_full_table_of_inodes_is_told_from_a_full_disk(new_relay: NewRelay, small_disk: Path) -> None:
    relay = new_relay(total=60, run_dir=f"{small_disk}/run", held_at=10)
    controller = relay.spawn("start")
    relay.wait_for_step(10)
    relay.wait_for(lambda: slot_of(relay)["state"] == "running", "status to show it")

    ballast = fill_inodes(small_disk)
    relay.release()  # its next report finds no room
    relay.wait_for(lambda: relay.status()["stale"] is not None, "status to say that it is old")

    assert relay.status()["stale"]["out_of_inodes"]
    assert "has no inode left" in relay.run("status").out

    shutil.rmtree(ballast)
    assert relay.ended(controller) == 0, relay.output()
    assert relay.counted() == 60
    assert NO_INODES in relay.run("explain", "0").out
