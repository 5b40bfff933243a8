"""What happens to single jobs: memory that runs out, and people who cancel, hold and release."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from relay import AT_ONCE, NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import ends, ever, on_slurm, rows_of

pytestmark = pytest.mark.slurm

CGROUP = Path("/sys/fs/cgroup")
#: Once a second slurmd adds up what a job uses, and kills it if that is too much.
WATCHED_MEMORY = {
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherParams": "OverMemoryKill",
    "JobAcctGatherFrequency": "task=1",
}
#: At step 40 of its first attempt it takes too much.
HUNGRY = ["python3", "./count.py", "80", "hungry"]


def assert_ran_out_of_memory(relay: Relay) -> None:
    """The first attempt died of it and says so, the second finished; nothing was counted twice."""
    ended = relay.events("ended")
    assert [event["verdict"] for event in ended] == ["crashed", "finished"], ended
    assert "out of memory" in ended[0]["cause"]
    assert relay.read("parent.json", 1)["step"] == 0  # it had saved nothing
    assert [n for attempt, n in relay.journal(0) if attempt == 1] == list(range(1, 81))
    assert relay.status()["slots"][0]["failures"] == 0  # its successor saved


@pytest.mark.long
def test_a_job_that_takes_more_memory_than_it_asked_for(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1, overrides=WATCHED_MEMORY)
    relay = on_slurm(new_relay, slurm, pace_s=0.005, held_at=60, command=HUNGRY)

    controller = relay.spawn("start")
    relay.wait_for((relay.attempt_dir(1) / "claim").exists, "the second job")
    relay.wait_for(lambda: relay.status()["slots"][0]["failures"] == 1, "the failure to be counted")
    relay.release()
    assert relay.ended(controller) == 0, relay.output()

    assert_ran_out_of_memory(relay)


@pytest.fixture
def cgroup_slurm(private_slurm: PrivateSlurm) -> Iterator[SlurmCluster]:
    """One node whose kernel enforces the memory of jobs, as on most clusters."""
    if os.geteuid() != 0 or not os.access(CGROUP / "memory" / "tasks", os.W_OK):
        pytest.skip("no cgroup (version 1) that this user may write: real limits of memory cannot be had")
    names = {
        "TaskPlugin": "task/cgroup",
        "ProctrackType": "proctrack/cgroup",
        "JobAcctGatherType": "jobacct_gather/cgroup",
    }
    yield private_slurm(nodes=1, overrides=names)
    for left in CGROUP.glob("*/slurm_n1"):
        for folder in sorted(left.rglob("*/"), reverse=True):
            folder.rmdir()
        left.rmdir()


@pytest.mark.long
@pytest.mark.may_skip("no cgroup (version 1)")
def test_a_job_that_the_kernel_kills_for_its_memory(cgroup_slurm: SlurmCluster, new_relay: NewRelay) -> None:
    relay = on_slurm(new_relay, cgroup_slurm, pace_s=0.005, command=HUNGRY, relay={"escalate": {"mem": "1G"}})

    assert relay.run("start").code == 0

    assert_ran_out_of_memory(relay)
    scripts = sorted((relay.run_dir / "jobs").glob("*/job.sh"))
    assert [re.findall("--mem=(.+)", script.read_text()) for script in scripts] == [["100M"], ["150M"]]
    assert [(event["attempt"], "150M" in event["why"]) for event in relay.events("raised")] == [(0, True)]
    assert ends(cgroup_slurm, relay) == ["OUT_OF_MEMORY", "COMPLETED"]


@pytest.mark.long
def test_a_job_that_saves_nothing_in_its_walltime_gets_twice_as_much(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1, overrides={"KillWait": "2"})
    relay = on_slurm(
        new_relay, slurm, command=["python3", "./count.py", "1000", "deaf"], pace_s=30.0,
        slurm={"time_limit": "2"}, relay={**AT_ONCE, "escalate": {"time_limit": "3"}},
    )  # fmt: skip
    relay.spawn("start")

    relay.wait_for(lambda: len(rows_of(slurm, relay)) == 1 and 1 in relay.attempts(), "the second job")

    assert slurm.ask("squeue", "-h", "-o", "%l").strip() == "3:00"
    assert [(event["attempt"], "0:03:00" in event["why"]) for event in relay.events("raised")] == [(0, True)]
    assert [event["verdict"] for event in relay.events("ended")] == ["timed out"]


@pytest.mark.long
@pytest.mark.parametrize(("hold", "words"), [("uhold", "held by you"), ("hold", "held by an administrator")])
def test_a_hold_is_shown_and_nothing_takes_the_held_jobs_place(
    private_slurm: PrivateSlurm, new_relay: NewRelay, hold: str, words: str
) -> None:
    slurm = private_slurm(nodes=1)
    blocker = slurm.submit("sleep 600", "--exclusive", "--mem=10M")  # so that ours has to wait
    relay = on_slurm(new_relay, slurm, total=30)
    controller = relay.spawn("start")
    relay.wait_for(lambda: rows_of(slurm, relay), "a job that waits")
    job = str(rows_of(slurm, relay)[0].job_id)
    slurm.ask("scontrol", hold, job)
    slurm.ask("scancel", str(blocker))

    relay.wait_for(lambda: words in relay.status()["slots"][0]["why"], "the reason")
    held = relay.status()["slots"][0]
    slurm.ask("scontrol", "release", job)

    assert (held["state"], held["job_id"], held["failures"]) == ("pending", job, 0)
    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(30)
    assert [str(row.job_id) for row in ever(slurm, relay)] == [job]


@pytest.mark.long
def test_a_job_that_its_user_cancels_while_it_runs_waits_for_start(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1, accounting=True)  # only a history says by whom
    relay = on_slurm(new_relay, slurm, total=60, slots=2, held_at=20)
    controller = relay.spawn("start")
    relay.wait_for_step(10, slot=0)
    relay.wait_for_step(10, slot=1)

    os.kill(controller.pid, signal.SIGSTOP)  # as if its poll came later than the history's lag
    slurm.ask("scancel", relay.read("claim", 0, slot=0)["job_id"])
    slurm.wait_for(lambda: "CANCELLED by" in slurm.ask("sacct", "-nPX", "-o", "State"), "the history to know")
    os.kill(controller.pid, signal.SIGCONT)

    relay.wait_for(lambda: relay.status()["slots"][0]["state"] == "paused", "the pause")
    assert f"cancelled by user {os.geteuid()} (scancel)" in relay.status()["slots"][0]["why"]
    relay.hold_at(30)
    relay.wait_for_step(30, slot=1)  # the other slot goes on
    assert relay.attempts(0) == [0]

    told = relay.run("start", "toy")  # while the controller lives
    assert told.code == 0, told.words
    assert "toy continues slot 0" in told.out
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    for slot in (0, 1):
        relay.assert_exactly_once(60, slot)
    assert relay.attempts(0) == [0, 1]
    assert relay.attempts(1) == [0]
