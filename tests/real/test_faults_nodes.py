"""Nodes and partitions that fail, close or are taken away, while a run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import assert_kept_once, ends, hand_over, on_slurm, rows_of, set_pace, tokens_of

pytestmark = pytest.mark.slurm

#: Slurm takes a silent node for dead within some 10 s.
IMPATIENT_SLURM = {"SlurmdTimeout": "5"}
TOTAL = 60
Change = Callable[[SlurmCluster], None]


@pytest.mark.long
def test_a_node_fails_and_its_job_lives_on(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=2, overrides=IMPATIENT_SLURM)
    relay = on_slurm(new_relay, slurm, total=2000)
    controller = relay.spawn("start")
    relay.wait_for_step(20)
    hand_over(relay, next_pace_s=0.05)
    relay.wait_for(lambda: steps_of(relay, 1), "the job that will be a ghost")
    parent = relay.read("parent.json", 1)
    ghost = rows_of(slurm, relay)[-1]

    slurm.kill_node(ghost.node)
    set_pace(relay, 0.01)
    slurm.wait_for_state(ghost.job_id, "NODE_FAIL")
    relay.wait_for(lambda: steps_of(relay, 2), "the next attempt")

    assert relay.read("claim", 2)["host"] != ghost.node
    assert relay.read("parent.json", 2) == parent  # the ghost has saved nothing yet
    before = len(steps_of(relay, 1))
    relay.wait_for(lambda: len(steps_of(relay, 1)) > before, "the ghost to write beside its successor")
    relay.wait_for((relay.attempt_dir(1) / "exit.json").exists, "the ghost to see that it is one")
    ended = relay.read("exit.json", 1)
    assert (ended["asked"], ended["superseded_by"]) == ("superseded", 2)
    assert relay.ended(controller) == 0, relay.output()
    assert assert_kept_once(relay, 2000) == [0, 2]
    saved = [int(path.name) for path in (relay.attempt_dir(1) / "checkpoints").iterdir()]
    assert max(saved) > parent["step"]  # what it saved in the end is nobody's
    assert [event["attempt"] for event in relay.events("ended")] == [0, 1, 2]
    slot = relay.status()["slots"][0]
    assert (slot["state"], slot["failures"]) == ("finished", 0)


def steps_of(relay: Relay, attempt: int) -> list[int]:
    """The steps that one attempt has done."""
    return [n for of, n in relay.journal(0) if of == attempt]


def drain(slurm: SlurmCluster) -> None:
    """Every node is drained: what runs, runs on."""
    slurm.ask("scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=new_disks")


def resume(slurm: SlurmCluster) -> None:
    """Every node is free again."""
    slurm.ask("scontrol", "update", "NodeName=ALL", "State=RESUME")


def partition_down(slurm: SlurmCluster) -> None:
    """Jobs are taken and wait."""
    slurm.ask("scontrol", "update", "PartitionName=gpu", "State=DOWN")


def partition_up(slurm: SlurmCluster) -> None:
    """As before."""
    slurm.ask("scontrol", "update", "PartitionName=gpu", "State=UP")


def maintenance(slurm: SlurmCluster) -> None:
    """All nodes are somebody else's from now on; what runs, runs on."""
    where = ("Nodes=ALL", "Users=daemon", "StartTime=now", "Duration=60", "Flags=MAINT,IGNORE_JOBS")
    slurm.ask("scontrol", "create", "reservation", "ReservationName=service", *where)


def maintenance_is_over(slurm: SlurmCluster) -> None:
    """As before."""
    slurm.ask("scontrol", "delete", "ReservationName=service")


def shortened_by_slurm(relay: Relay) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """The controller, and the slot as its screens tell it, once it runs in a job of less time."""
    controller = relay.spawn("start")
    relay.wait_for_step(10)
    relay.wait_for(lambda: relay.status()["slots"][0]["shortened"], "a shortened job")
    return controller, relay.status()["slots"][0]


@pytest.mark.long
def test_a_job_is_shortened_to_end_before_a_maintenance_and_the_screens_say_so(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1)
    times = ("StartTime=now+5minutes", "Duration=60", "Flags=MAINT,IGNORE_JOBS")
    slurm.ask("scontrol", "create", "reservation", "ReservationName=service", "Nodes=ALL", "Users=daemon", *times)
    limits = {"time_limit": "4:00:00", "time_min": "0:02:00"}
    relay = on_slurm(new_relay, slurm, total=TOTAL, held_at=10, slurm=limits)
    controller, slot = shortened_by_slurm(relay)
    relay.release()

    assert 110 <= slot["ends_at"] - slot["started_at"] <= 300
    assert "of 4:00:00" in slot["shortened"]
    assert slot["shortened"] in relay.run("explain", "0").out
    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(TOTAL)


@pytest.mark.long
def test_a_job_is_shortened_to_fit_before_a_job_that_waits_for_the_whole_node(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1, cpus=2)
    half = slurm.submit("sleep 600", "--cpus-per-task=1", "--time=5")
    slurm.wait_for_state(half, "RUNNING")
    whole = slurm.submit("true", "--cpus-per-task=2", "--time=5")
    limits = {"time_limit": "4:00:00", "time_min": "0:02:00"}
    relay = on_slurm(new_relay, slurm, total=TOTAL, held_at=10, slurm=limits)
    controller, slot = shortened_by_slurm(relay)
    waiting = slurm.job(whole)

    assert waiting is not None
    assert waiting.state == "PENDING"
    assert slot["ends_at"] - slot["started_at"] <= 300  # the hole in front of the one that waits
    relay.release()
    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(TOTAL)


@pytest.mark.long
@pytest.mark.parametrize(
    ("close", "words", "reopen"),
    [
        (drain, "DRAINED", resume),
        pytest.param(partition_down, "PartitionDown", partition_up, marks=pytest.mark.long),
        (maintenance, "Reserved for maintenance", maintenance_is_over),
    ],
)
def test_what_is_closed_lets_the_job_run_on_and_the_next_one_wait(
    private_slurm: PrivateSlurm, new_relay: NewRelay, close: Change, words: str, reopen: Change
) -> None:
    slurm = private_slurm(nodes=2)
    relay = on_slurm(new_relay, slurm, total=TOTAL, held_at=10)
    controller = relay.spawn("start")
    relay.wait_for_step(10)

    close(slurm)
    relay.hold_at(30)
    relay.wait_for_step(30)
    assert relay.attempts() == [0]
    hand_over(relay)
    relay.wait_for(lambda: words in json.dumps(relay.status()["slots"][0]), "Slurm's reason")
    waiting = relay.status()["slots"][0]
    reopen(slurm)
    relay.release()

    assert waiting["state"] == "pending"
    assert relay.ended(controller) == 0, relay.output()
    assert_nothing_was_submitted_twice(slurm, relay)


def assert_nothing_was_submitted_twice(slurm: SlurmCluster, relay: Relay) -> None:
    """Two attempts, two jobs, every step once."""
    relay.assert_exactly_once(TOTAL)
    assert relay.attempts() == [0, 1]
    assert ends(slurm, relay) == ["COMPLETED", "COMPLETED"]
    assert [len(tokens_of(relay, attempt)) for attempt in (0, 1)] == [1, 1]
    assert relay.status()["slots"][0]["failures"] == 0


@pytest.mark.long
@pytest.mark.parametrize("lost", ["its interpreter", "its code"])
def test_what_the_run_itself_has_lost_accuses_no_node(
    private_slurm: PrivateSlurm, new_relay: NewRelay, tmp_path: Path, lost: str
) -> None:
    slurm = private_slurm(nodes=1)
    python = tmp_path / "python"
    python.symlink_to(Path(sys.executable).resolve())
    relay = on_slurm(new_relay, slurm, total=TOTAL, held_at=10, slots=2, python=str(python))
    controller = relay.spawn("start")
    for slot in (0, 1):
        relay.wait_for_step(5, slot)

    (code,) = (relay.run_dir / "code").glob("*/anchorleg/words.py")
    gone = python if lost == "its interpreter" else code
    gone.rename(away := tmp_path / "away")
    for slot in (0, 1):
        hand_over(relay, slot)
    relay.wait_for(lambda: all(sum(e["slot"] == slot for e in relay.events("ended")) > 3 for slot in (0, 1)), "deaths")
    away.rename(gone)
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    assert {event["verdict"] for event in relay.events("ended")} == {"handed over", "crashed", "finished"}
    assert relay.events("node excluded") == []


@pytest.mark.long
def test_a_suspended_job_is_shown_as_such_and_without_a_rate(slurm: SlurmCluster, new_relay: NewRelay) -> None:
    relay = on_slurm(new_relay, slurm, total=TOTAL, held_at=10)
    controller = relay.spawn("start")
    relay.wait_for_step(10)
    job = relay.read("claim", 0)["job_id"]

    slurm.ask("scontrol", "suspend", job)
    relay.wait_for(lambda: relay.status()["slots"][0]["state"] == "suspended", "the look that shows it")
    assert relay.status()["slots"][0]["rate"] is None
    slurm.ask("scontrol", "resume", job)
    relay.wait_for(lambda: relay.status()["slots"][0]["state"] == "running", "the look that shows it running")
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(TOTAL)
