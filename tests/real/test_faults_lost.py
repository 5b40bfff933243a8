"""What slurmctld had not saved when it was killed: a job that it no longer knows, and an end that it does not."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest
from relay import NewRelay
from slurm_cluster import PrivateSlurm
from slurm_relay import on_slurm, rows_of, saved_at, start_impatient

from orchestrator.decisions.adoption import LEFT_WHY

pytestmark = pytest.mark.slurm

#: Slurm would remember an ended job for a day: nobody can wait for that.
REMEMBERS_S = "86400"
#: An end is saved five seconds after what was saved before it. On a busy machine it may take longer than that to end.
TRIES = 12


@pytest.mark.long
def test_without_accounting_a_lost_and_silent_job_is_over_whatever_slurm_remembers(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=2, overrides={"MinJobAge": REMEMBERS_S})
    relay = on_slurm(new_relay, slurm, total=60, held_at=20)
    controller = start_impatient(relay, silent=3)
    relay.wait_for_step(20)
    slurm.stop_controller()
    os.kill(relay.read("claim", 0)["pid"], signal.SIGKILL)
    relay.kill_program()
    shutil.rmtree(slurm.folder / "state")
    (slurm.folder / "state").mkdir()
    slurm.start_controller()

    # Not [0, 1]: slurmd may refuse the first job of the new slurmctld, which has the old one's id.
    relay.wait_for(lambda: len(relay.attempts()) > 1, "the slot to go on")

    ended = relay.events("ended")[0]
    assert ended["verdict"] == "node failed"  # nothing of it is the program's doing
    assert "there is no history, and no heartbeat" in ended["cause"]
    assert relay.status()["slots"][0]["failures"] == 0
    relay.release()
    assert relay.ended(controller) == 0, relay.output()


@pytest.mark.long
def test_a_job_that_has_ended_and_that_slurm_takes_for_running_is_cancelled(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=2)
    relay = on_slurm(new_relay, slurm, total=100_000, pace_s=0.05)
    start_impatient(relay, left=2)

    def ended_unsaved() -> bool:
        """The newest attempt hands over, and slurmctld is killed when it knows and has not saved it."""
        newest = relay.attempts()[-1]
        job = int(relay.read("claim", newest)["job_id"])
        saved: list[float] = []

        def is_saved() -> bool:
            saved.append(saved_at(slurm))
            return saved[-1] > asked_at

        asked_at = time.time()
        slurm.ask("scontrol", "update", f"jobid={job}", "comment=save")
        slurm.wait_for(is_saved, "slurmctld to save")
        relay.hand_over()
        slurm.wait_for(lambda: (row := slurm.job(job)) is None or row.state != "RUNNING", "slurmctld to hear of it")
        slurm.kill_controller()
        unsaved = saved_at(slurm) == saved[-1]
        slurm.start_controller()
        row = slurm.job(job)
        return unsaved and row is not None and row.state == "RUNNING"

    for attempt in range(TRIES):
        relay.wait_for(lambda n=attempt: len(relay.attempts()) > n, "the next attempt to begin")
        if ended_unsaved():
            break
    else:
        pytest.fail("every end was saved in time")

    relay.wait_for(
        lambda: LEFT_WHY in [event["why"] for event in relay.events("cancelled")], "the controller to cancel it"
    )
    (event,) = [event for event in relay.events("cancelled") if event["why"] == LEFT_WHY]
    relay.wait_for(
        lambda: int(event["job_id"]) not in [row.job_id for row in rows_of(slurm, relay)], "the job to leave the queue"
    )
    assert {slot["state"] for slot in relay.status()["slots"]}.isdisjoint({"paused", "failed"})
    assert relay.run("stop").code == 0
