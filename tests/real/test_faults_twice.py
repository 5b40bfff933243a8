"""slurmctld killed just after its backfill scheduler has started a job, again and again: it starts that job once more.

On another node the second run finds the attempt taken. On the same node slurmd refuses it, and Slurm ends the first.
"""

from __future__ import annotations

import json
import random
import time

import pytest
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm
from slurm_relay import on_slurm

pytestmark = [pytest.mark.slurm, pytest.mark.long]

KILLS = 10
SLOTS = 4
#: The main scheduler sleeps, so that the backfill scheduler makes every start: those it does not save at once.
BACKFILL = "batch_sched_delay=600,sched_interval=600,bf_interval=1,bf_continue"
#: As an administrator's watchdog would.
RESTART_S = 8.0


def begun(relay: Relay) -> int:
    """How many attempts were claimed so far."""
    return len(list(relay.run_dir.glob("slots/*/attempts/*/claim")))


def assert_one_at_a_time(relay: Relay) -> None:
    """Once an attempt has done a step, no older one of its slot does another."""
    for slot in range(SLOTS):
        newest = -1
        for attempt, n in relay.journal(slot):
            assert attempt >= newest, f"slot {slot}: attempt {attempt} counts {n}, and attempt {newest} is at work"
            newest = attempt


@pytest.mark.parametrize("accounting", [False, True], ids=["queue alone", "accounting"])
@pytest.mark.parametrize("seed", [1, 2])
def test_aimed_kills_let_no_two_attempts_work_and_lose_no_slot(
    private_slurm: PrivateSlurm, new_relay: NewRelay, seed: int, accounting: bool
) -> None:
    overrides = {"MessageTimeout": "2", "SchedulerParameters": BACKFILL}
    slurm = private_slurm(nodes=2, cpus=1, accounting=accounting, overrides=overrides)
    relay = on_slurm(
        new_relay, slurm, slots=SLOTS, pace_s=0.05, training={"max_runtime_seconds": 8},
        command=["python3", "./count.py", "1000000"],
    )  # fmt: skip
    relay.spawn("start")

    def wait_for_begins(count: int, what: str) -> None:
        wanted = begun(relay) + count

        def there() -> bool:
            # A node that has refused a second start is drained ("Duplicate jobid"), and an administrator resumes it.
            slurm.run("scontrol", "update", "nodename=n1,n2", "state=resume")
            return begun(relay) >= wanted

        relay.wait_for(there, what)

    wait_for_begins(2 * SLOTS, "jobs that slurmctld has saved while they waited")
    rng = random.Random(seed)
    for _ in range(KILLS):
        wait_for_begins(1, "a waiting job to begin")
        aim_at = time.monotonic() + rng.uniform(0.0, 2.0)
        relay.wait_for(lambda at=aim_at: time.monotonic() >= at, "the moment")
        slurm.kill_controller()
        back_at = time.monotonic() + RESTART_S
        relay.wait_for(lambda at=back_at: time.monotonic() >= at, "the watchdog")
        slurm.start_controller()
    wait_for_begins(SLOTS, "the slots to go on")

    assert_one_at_a_time(relay)
    states = [slot["state"] for slot in relay.status()["slots"]]
    assert not {"paused", "failed"} & set(states), json.dumps(relay.status()["slots"], indent=1)
    assert relay.run("stop").code == 0
    assert_one_at_a_time(relay)
