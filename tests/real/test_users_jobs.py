"""What happens to single jobs: memory that runs out, and people who cancel, hold and release."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import ever, on_slurm

pytestmark = pytest.mark.slurm

CGROUP = Path("/sys/fs/cgroup")
#: Once a second slurmd adds up what a job uses, and kills it if that is too much.
WATCHED_MEMORY = {
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherParams": "OverMemoryKill",
    "JobAcctGatherFrequency": "task=1",
}


def assert_ran_out_of_memory(relay: Relay) -> None:
    """The first attempt died of it and says so, the second finished; nothing was counted twice."""
    ended = relay.events("ended")
    assert [event["verdict"] for event in ended] == ["crashed", "finished"], ended
    assert "out of memory" in ended[0]["cause"]
    assert relay.read("parent.json", 1)["step"] == 0  # it had saved nothing
    assert [n for attempt, n in relay.journal(0) if attempt == 1] == list(range(1, 81))
    assert relay.status()["slots"][0]["failures"] == 0  # its successor saved


def test_a_job_that_takes_more_memory_than_it_asked_for(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1, overrides=WATCHED_MEMORY)
    relay = on_slurm(
        new_relay, slurm, pace_s=0.005, command=["python3", "./count.py", "80", "hungry"],
        relay={"retry_delays_seconds": [0]},
    )  # fmt: skip

    controller = relay.spawn("start")
    relay.wait_for((relay.attempt_dir(1) / "claim").exists, "the second job")
    assert relay.status()["slots"][0]["failures"] == 1
    assert controller.wait(40) == 0, relay.output()

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


def test_a_job_that_the_kernel_kills_for_its_memory(cgroup_slurm: SlurmCluster, new_relay: NewRelay) -> None:
    relay = on_slurm(
        new_relay, cgroup_slurm, pace_s=0.005, command=["python3", "./count.py", "80", "hungry"],
        relay={"retry_delays_seconds": [0]},
    )  # fmt: skip

    assert relay.run("start").code == 0

    assert_ran_out_of_memory(relay)
    assert [row.state for row in ever(cgroup_slurm, relay)] == ["OUT_OF_MEMORY", "COMPLETED"]
