"""Slurm forgets ended jobs, keeps no history, or cannot reach it: what is no proof, and what is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import assert_kept_once, ever, on_slurm

from orchestrator.decisions.sightings import HEARTBEAT_SILENT_S

pytestmark = pytest.mark.slurm

#: Ended jobs are forgotten within seconds, as on a busy site with a short MinJobAge.
FORGETFUL = {"MinJobAge": "2"}
#: Saves every 100 steps, whatever it is asked: what is killed has something to go on from.
DEAF = ["python3", "./count.py", "300", "deaf"]
#: Where it is when it is killed.
STOPS_AT = 120


def lose_its_end(slurm: SlurmCluster, relay: Relay, controller: subprocess.Popen[str]) -> None:
    """The running job dies without a word and is forgotten before anybody looks."""
    relay.wait_for_step(STOPS_AT)
    os.kill(controller.pid, signal.SIGSTOP)  # the poll that comes too late
    os.kill(relay.read("claim", 0)["pid"], signal.SIGKILL)
    slurm.wait_for(lambda: ever(slurm, relay) == [], "the purge")
    assert not (relay.attempt_dir(0) / "exit.json").exists()
    relay.release()
    os.kill(controller.pid, signal.SIGCONT)


def assert_went_on(relay: Relay, controller: subprocess.Popen[str]) -> None:
    """One more attempt, from the last checkpoint; one end for each."""
    assert relay.ended(controller) == 0, relay.output()
    assert assert_kept_once(relay, 300) == [0, 1]
    assert relay.read("parent.json", 1)["step"] >= 100
    ended = [(event["attempt"], event["verdict"]) for event in relay.events("ended")]
    assert ended[-1] == (1, "finished")
    assert [attempt for attempt, _ in ended] == [0, 1]


@pytest.mark.long
def test_purged_before_the_poll_the_history_proves_the_end(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1, accounting=True, overrides=FORGETFUL)
    relay = on_slurm(new_relay, slurm, pace_s=0.01, command=DEAF, held_at=STOPS_AT)
    controller = relay.spawn("start")

    lose_its_end(slurm, relay, controller)

    assert_went_on(relay, controller)


@pytest.mark.long
def test_purged_without_a_history_absence_and_silence_prove_the_end(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    """Nobody knows how the job ended: it is over once it is absent, and silent, for long enough, and not before."""
    slurm = private_slurm(nodes=1, overrides=FORGETFUL)
    relay = on_slurm(new_relay, slurm, pace_s=0.01, command=DEAF, held_at=STOPS_AT)
    controller = relay.spawn("start")
    lose_its_end(slurm, relay, controller)
    relay.wait_for(lambda: relay.status()["slots"][0]["state"] == "blind", "the slot to be blind")
    assert relay.status()["slots"][0]["job_id"] == relay.read("claim", 0)["job_id"]

    relay.wait_for((relay.attempt_dir(1) / "claim").exists, "the next attempt")

    assert relay.read("claim", 1)["at"] - relay.read("claim", 0)["at"] > HEARTBEAT_SILENT_S
    assert_went_on(relay, controller)


@pytest.mark.long
def test_a_silent_end_waits_until_slurmdbd_is_back(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1, accounting=True, overrides=FORGETFUL)
    relay = on_slurm(new_relay, slurm, pace_s=0.01, command=DEAF, held_at=STOPS_AT)
    controller = relay.spawn("start")
    relay.wait_for_step(5)

    slurm.daemons.end("slurmdbd")
    lose_its_end(slurm, relay, controller)
    relay.wait_for(lambda: relay.status()["slots"][0]["state"] == "blind", "the slot to be blind")
    blind = relay.status()["slots"][0]
    seen_at = time.monotonic()
    relay.wait_for(lambda: time.monotonic() > seen_at + 3, "some more polls")

    assert "talking to the database" in json.dumps(blind)
    assert relay.attempts() == [0]  # nothing is submitted while it may still run
    slurm.accounting.start_slurmdbd()
    assert_went_on(relay, controller)
    assert relay.status()["slots"][0]["failures"] == 0
