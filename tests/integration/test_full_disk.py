"""A run on a disk that fills up, so that its job dies and its controller cannot say so: what people are shown then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from full_disk import fill, fill_inodes
from relay import NewRelay, Relay

from orchestrator.decisions.verdicts import NO_INODES

#: Whether the job's error output found room, nobody can say before.
CAUSES = ("no space left on the disk", "it left no word, and the disk is full")


def slot_of(relay: Relay) -> dict[str, object]:
    return dict(relay.status()["slots"][0])


def test_status_and_explain_tell_of_a_job_that_died_of_it_until_there_is_room(
    new_relay: NewRelay, small_disk: Path
) -> None:
    relay = new_relay(total=60, run_dir=f"{small_disk}/run", held_at=10)
    controller = relay.spawn("start")
    relay.wait_for_step(10)
    relay.wait_for(lambda: slot_of(relay)["state"] == "running", "status to show it")

    ballast = fill(small_disk)
    relay.release()  # its next report finds no room
    relay.wait_for(lambda: slot_of(relay)["state"] == "waiting", "status to see for itself that the job is over")

    shown, told = relay.status(), relay.run("status").out
    assert shown["second_look"]["free_bytes"] < 1 << 16
    assert (shown["slots"][0]["rate"], shown["slots"][0]["job_id"]) == (None, None)
    assert shown["slots"][0]["last_cause"] in CAUSES
    assert "the disk is full (" in told
    assert "steps/s" not in told
    explained = relay.run("explain", "0").out.splitlines()
    assert "slot 0 is waiting" in explained[0]
    assert "no new job now: the disk is full" in explained[2]
    assert sum("ended: " in line and any(cause in line for cause in CAUSES) for line in explained) == 1

    ballast.unlink()
    assert relay.ended(controller) == 0, relay.output()
    assert relay.counted() == 60
    after = json.loads(relay.run("status", "--json").out)
    assert (after["state"], after["second_look"]) == ("finished", None)


def test_a_full_table_of_inodes_is_told_from_a_full_disk(new_relay: NewRelay, small_disk: Path) -> None:
    relay = new_relay(total=60, run_dir=f"{small_disk}/run", held_at=10)
    controller = relay.spawn("start")
    relay.wait_for_step(10)
    relay.wait_for(lambda: slot_of(relay)["state"] == "running", "status to show it")

    ballast = fill_inodes(small_disk)
    relay.release()  # its next report finds no room
    relay.wait_for(lambda: slot_of(relay)["state"] == "waiting", "status to see for itself that the job is over")

    shown, told = relay.status(), relay.run("status").out
    assert shown["second_look"]["out_of_inodes"]
    assert shown["slots"][0]["last_cause"].partition(" (")[0] == NO_INODES
    assert "(no inode free in" in told

    shutil.rmtree(ballast)
    assert relay.ended(controller) == 0, relay.output()
    assert relay.counted() == 60
