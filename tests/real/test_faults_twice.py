"""slurmctld killed just after its backfill scheduler has started a job, again and again: it starts that job once more.

On another node the second run finds the attempt taken. On the same node slurmd refuses it, and Slurm ends the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import on_slurm, rows_of, saved_at, start_impatient

from orchestrator.decisions.models import parse_token

pytestmark = [pytest.mark.slurm, pytest.mark.long]

#: Of each of the four: more in the environment, for a long night.
KILLS = int(os.environ.get("ANCHORLEG_KILLS", "10"))
SLOTS = 4
NODES = 2
#: The main scheduler sleeps, so that the backfill scheduler makes every start: those it does not save at once.
BACKFILL = "batch_sched_delay=600,sched_interval=600,bf_interval=1,bf_continue"
#: slurmctld's SAVE_MAX_WAIT, and a second.
WRITES_EVERY_S = 6.0
ASK_EVERY_S = 0.25
#: An end that was not saved keeps one of the two nodes until the controller takes the job out.
LEFT_S = 5.0
#: As an administrator's watchdog would.
RESTART_S = 8.0


def begun(relay: Relay) -> set[Path]:
    """The claims so far, one for each attempt that has begun."""
    return set(relay.run_dir.glob("slots/*/attempts/*/claim"))


def assert_one_at_a_time(relay: Relay) -> None:
    """Once an attempt has done a step, no older one of its slot does another."""
    for slot in range(SLOTS):
        newest = -1
        for attempt, n in relay.journal(slot):
            assert attempt >= newest, f"slot {slot}: attempt {attempt} counts {n}, and attempt {newest} is at work"
            newest = attempt


def running(slurm: SlurmCluster, relay: Relay) -> list[int]:
    """The slots whose jobs run, as Slurm has it, have begun, and have not ended by their own word."""
    tokens = [Path(row.work_dir).name for row in rows_of(slurm, relay) if row.state == "RUNNING"]
    folders = [(slot, relay.attempt_dir(number, slot)) for slot, number in filter(None, map(parse_token, tokens))]
    return [slot for slot, at in folders if (at / "claim").exists() and not (at / "exit.json").exists()]


def ask(relay: Relay, slot: int) -> None:
    """Ask a job to hand over, and do not wait for it: one that Slurm shows as running may have been ended with a second
    start on its node, without a word.
    """
    token = relay.read("claim", relay.attempts(slot)[-1], slot)["token"]
    (relay.run_dir / "jobs" / token / "hand-over").touch()


def ready(slurm: SlurmCluster, relay: Relay) -> list[int]:
    """The slots at work, where there is one on each node, and another job waits; else none. (Not one of each slot: a
    submission that was not written is given up after a while only.)
    """
    slots = running(slurm, relay)
    return slots if is_settled(slurm) and len(slots) == NODES and len(rows_of(slurm, relay)) > NODES else []


@pytest.mark.parametrize("accounting", [False, True], ids=["queue alone", "accounting"])
@pytest.mark.parametrize("seed", [1, 2])
def test_aimed_kills_let_no_two_attempts_work_and_lose_no_slot(
    private_slurm: PrivateSlurm, new_relay: NewRelay, seed: int, accounting: bool
) -> None:
    # An end that was not saved is found out by Slurm after BatchStartTimeout.
    overrides = {"MessageTimeout": "2", "BatchStartTimeout": "5", "MinJobAge": "60", "SchedulerParameters": BACKFILL}
    slurm = private_slurm(nodes=NODES, cpus=1, accounting=accounting, overrides=overrides)
    relay = on_slurm(new_relay, slurm, slots=SLOTS, pace_s=0.05, command=["python3", "./count.py", "1000000"])
    start_impatient(relay, left=LEFT_S)
    rng = random.Random(seed)

    def wait_for(condition: Callable[[], object], what: str) -> None:
        """Slower than other tests look: each look asks Slurm, and Slurm has enough to do here. A command that loses
        slurmctld, which now and then dies again by itself, has seen nothing.
        """
        last = 0.0

        def there() -> object:
            nonlocal last
            if time.monotonic() - last < ASK_EVERY_S:
                return False
            seen: object = False
            with contextlib.suppress(RuntimeError):
                look_after(slurm)
                seen = condition()
            last = time.monotonic()
            return seen

        relay.wait_for(there, what)

    def seen(look: Callable[[], list[int]], what: str) -> list[int]:
        """What `look` finds, as soon as it finds something: a moment later it may be over."""
        found: list[list[int]] = []

        def there() -> bool:
            found.append(look())
            return bool(found[-1])

        wait_for(there, what)
        return found[-1]

    for _ in range(KILLS):
        at_work = seen(lambda: ready(slurm, relay), "a job at work on each node, one that waits, and all written")
        first, other = rng.sample(at_work, NODES)
        before = begun(relay)
        ask(relay, first)  # its end is written at once, what happens within the next seconds is not
        wait_for(lambda before=before: begun(relay) - before, "a waiting job to begin")
        aim_at = time.monotonic() + rng.uniform(0.0, 2.0)
        relay.wait_for(lambda at=aim_at: time.monotonic() >= at, "the moment")
        slurm.kill_controller()
        if rng.random() < 0.5:
            ask(relay, other)  # so that there is another node for the second run
        back_at = time.monotonic() + RESTART_S
        relay.wait_for(lambda at=back_at: time.monotonic() >= at, "the watchdog")
        slurm.start_controller()
    before = begun(relay)
    for slot in seen(lambda: running(slurm, relay), "jobs at work"):
        ask(relay, slot)
    wait_for(lambda: len(begun(relay) - before) >= NODES, "the slots to go on")

    assert_one_at_a_time(relay)
    states = [slot["state"] for slot in relay.status()["slots"]]
    assert not {"paused", "failed"} & set(states), json.dumps(relay.status()["slots"], indent=1)
    relay.wait_for(lambda: relay.run("stop").code == 0, "the jobs to end")  # a busy machine ends them late
    assert_one_at_a_time(relay)


def look_after(slurm: SlurmCluster) -> None:
    """What an administrator does after a crash of slurmctld, and his watchdog: now and then it dies again by itself,
    seconds after it came back.

    A node that has refused a second start is drained ("Duplicate jobid"): it is resumed. A job whose end was not
    written runs on for Slurm, until its node registers again, half an hour later: that is the controller's to see to.
    """
    if slurm.daemons.pid("slurmctld") is None:
        slurm.start_controller()
    if "drain" in slurm.run("sinfo", "-h", "-N", "-o", "%T").stdout:
        slurm.run("scontrol", "update", f"nodename=n[1-{NODES}]", "state=resume")


def is_settled(slurm: SlurmCluster) -> bool:
    """Whether slurmctld has written its state some time ago, and nothing has happened since: it writes what happens at
    once, but not twice within five seconds.
    """
    at = saved_at(slurm)
    return at > 0 and time.time() - at > WRITES_EVERY_S
