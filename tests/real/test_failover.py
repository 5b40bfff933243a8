"""Failover on real Slurm: jobs that end while no controller lives keep the relay going, and where that stops."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import ends, on_slurm, rows_of

pytestmark = pytest.mark.slurm


#: For so long the jobs must not have heard of a controller; in earnest five minutes.
SILENT_S = 0.5


def hurry(relay: Relay, silent_s: float) -> None:
    """The jobs' own copy of the code takes a controller for gone after so long, not five minutes."""
    for name, constant, seconds in (("failover", "SILENT_S", silent_s), ("shim", "HEARTBEAT_S", 0.2)):
        path = relay.folder / "code" / "orchestrator" / f"{name}.py"
        text, count = re.subn(rf"^{constant} = .*$", f"{constant} = {seconds}", path.read_text(), flags=re.MULTILINE)
        assert count == 1
        path.write_text(text)


def left_alone(new_relay: NewRelay, slurm: SlurmCluster, **settings: Any) -> Relay:
    """A run whose jobs are all held at step 10, and whose controller was killed long enough ago."""
    relay = on_slurm(new_relay, slurm, own_code=True, held_at=10, **settings)
    hurry(relay, SILENT_S)
    controller = relay.spawn("start")
    for slot in range(settings.get("slots", 1)):
        relay.wait_for_step(10, slot)
    controller.kill()
    controller.wait()
    before = beats(relay)
    # A job looks for the controller, then writes its beat: by the second one it has looked at what is there now.
    relay.wait_for(lambda: all(now >= then + 2 for then, now in zip(before, beats(relay), strict=True)), "two beats")
    looked_at = time.monotonic()
    relay.wait_for(lambda: time.monotonic() > looked_at + 3 * SILENT_S, "the silence to be noticed")
    return relay


def beats(relay: Relay) -> list[int]:
    """How often the newest job of each slot has looked around."""
    found = []
    for slot in range(len(relay.ledger()["slots"])):
        path = relay.attempt_dir(relay.attempts(slot)[-1], slot) / "heartbeat.json"
        found.append(json.loads(path.read_text())["beat"] if path.exists() else 0)
    return found


def said(relay: Relay) -> str:
    """What all jobs have printed."""
    return "".join(path.read_text() for path in relay.run_dir.glob("jobs/*/job-*.out"))


@pytest.mark.long
def test_jobs_go_on_by_themselves_to_the_end(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=2)
    relay = left_alone(new_relay, slurm, slots=2, total=60)

    for step in (20, 30):
        relay.hold_at(step)
        for slot in (0, 1):
            relay.hand_over(slot)
        for slot in (0, 1):
            relay.wait_for_step(step, slot)  # its next job
    relay.release()
    relay.wait_for(lambda: relay.status()["state"] == "finished", "the end without a controller")

    for slot in (0, 1):
        relay.assert_exactly_once(60, slot)
        assert relay.attempts(slot) == [0, 1, 2]
    assert "this job runs a tick" in said(relay)
    assert "slot 0: submitted attempt 1 as job" in (relay.run_dir / "controller.log").read_text()
    slurm.wait_until_empty()
    assert set(ends(slurm, relay)) == {"COMPLETED"}
    owners = [path.read_text() for path in Path(relay.run_dir, "lease").glob("[0-9]*") if path.suffix == ""]
    assert any("tick --failover" in owner for owner in owners)


@pytest.mark.long
def test_with_a_living_controller_and_where_it_is_not_wanted_no_job_ticks(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=2)
    living = on_slurm(new_relay, slurm, "living", total=300, own_code=True, training={"max_runtime_seconds": 7})
    hurry(living, 5.0)  # its controller polls twice a second, and writes each time
    done = living.run("start")
    assert done.code == 0, done.words
    assert "this job runs a tick" not in said(living)

    relay = left_alone(new_relay, slurm, total=60, relay={"failover_tick": False})
    relay.hand_over()
    slurm.wait_until_empty()

    assert relay.attempts() == [0]
    assert "this job runs a tick" not in said(relay)


@pytest.mark.long
def test_at_a_limit_of_as_many_jobs_as_slots_it_settles_at_one_less(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slots = 3
    slurm = private_slurm(nodes=2, accounting=True)
    user = slurm.ask("id", "-un").strip()
    slurm.ask("sacctmgr", "-i", "modify", "user", user, "set", f"MaxSubmitJobs={slots}")
    relay = left_alone(new_relay, slurm, slots=slots, total=100_000)
    relay.release()

    def generations() -> bool:
        for slot in range(slots):  # every job hands over as soon as it has made a step
            attempt = relay.attempts(slot)[-1]
            if attempt == relay.journal(slot)[-1][0]:
                (relay.run_dir / "jobs" / relay.read("claim", attempt, slot)["token"] / "hand-over").touch()
        return sum(len(relay.attempts(slot)) for slot in range(slots)) >= slots + 4 * (slots - 1)

    relay.wait_for(generations, "four generations of jobs without a controller")

    relay.wait_for(lambda: len(rows_of(slurm, relay)) >= slots - 1, "all but one slot to have a job")
    assert {slot["failures"] for slot in relay.status()["slots"]} == {0}
    stopped = relay.run("stop", "--now")  # against jobs that go on submitting until they hear of it
    assert stopped.code == 0, stopped.words
    slurm.wait_until_empty()
