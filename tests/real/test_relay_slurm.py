"""The relay on a real Slurm: the same program, the same promises."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from relay import NewRelay
from slurm_cluster import SlurmCluster
from slurm_relay import ends, on_slurm, rows_of

pytestmark = pytest.mark.slurm


@pytest.fixture
def new_slurm_relay(new_relay: NewRelay, slurm: SlurmCluster) -> NewRelay:
    """`new_relay` for the shared cluster."""
    return partial(on_slurm, new_relay, slurm)


@pytest.mark.long
def test_two_slots_are_handed_over_by_the_clock_until_they_are_done(
    new_slurm_relay: NewRelay, slurm: SlurmCluster
) -> None:
    relay = new_slurm_relay(total=240, slots=2, training={"max_runtime_seconds": 1.5})

    with relay.watched() as seen:
        done = relay.run("start")

    assert done.code == 0, done.words
    for slot in (0, 1):
        relay.assert_exactly_once(240, slot)
        assert len(relay.attempts(slot)) >= 3
        assert relay.asked(slot)[:-1] == ["deadline"] * (len(relay.attempts(slot)) - 1)
    nodes = {slot["node"] for view in seen for slot in view["slots"] if slot["state"] == "running"}
    nodes.discard("")  # its claim may be seen before the queue is asked
    assert nodes <= {"n1", "n2", "n3", "n4"}
    assert nodes
    assert ends(slurm, relay) == ["COMPLETED"] * (len(relay.attempts(0)) + len(relay.attempts(1)))
    assert relay.status()["state"] == "finished"


@pytest.mark.long
def test_a_stop_leaves_no_job_in_the_queue_and_a_start_goes_on_from_there(
    new_slurm_relay: NewRelay, slurm: SlurmCluster
) -> None:
    relay = new_slurm_relay(total=60, slots=2, held_at=20)
    with relay.watched():
        controller = relay.spawn("start")
        relay.wait_for_step(20, slot=0)
        relay.wait_for_step(20, slot=1)

        stopped = relay.run("stop", "toy", cwd=Path("/"))

        assert stopped.code == 0, stopped.words
        slurm.wait_for(lambda: not rows_of(slurm, relay), "an empty queue")
        assert relay.ended(controller) == 0, relay.output()
        view = relay.status()
        assert view["state"] == "stopped"
        for slot in view["slots"]:
            assert slot["checkpoint_step"] == 20
        relay.release()
        again = relay.run("start")

    assert again.code == 0, again.words
    for slot in (0, 1):
        relay.assert_exactly_once(60, slot)
        assert len(relay.attempts(slot)) == 2


@pytest.mark.long
def test_neither_the_folders_name_nor_the_shells_limits_reach_into_a_job(
    new_slurm_relay: NewRelay, slurm: SlurmCluster
) -> None:
    """`%2`, `%a` and `%j` are sbatch's own words in a file's name; `ulimit -S` is the login node's protection."""
    name = "My%20notes, acc95%above %j"
    setup = ["ulimit -S -n >&2", "ulimit -S -t >&2"]
    relay = new_slurm_relay(name, total=20, run_name="toy", run_dir=f"runs/{name}", slurm={"setup": setup})
    limited = ["bash", "-c", 'ulimit -S -n 300 -t 9999; exec "$@"', "-", sys.executable, "-m", "orchestrator", "start"]

    done = subprocess.run(
        limited, cwd=relay.folder, env=relay.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    relay.assert_exactly_once(20)
    assert relay.attempts() == [0]
    assert relay.status()["state"] == "finished"
    of_node = [str(soft) for soft in soft_limits(slurm.daemons.pid("slurmd.n1"), "NOFILE", "CPU")]
    [said] = [path.read_text().split() for path in (relay.run_dir / "logs").glob("slurm-*.err")]
    assert said[:2] == of_node


def soft_limits(pid: int | None, *names: str) -> list[int | str]:
    """Those of a process, as a shell says them."""
    soft = [resource.prlimit(pid or 0, getattr(resource, f"RLIMIT_{name}"))[0] for name in names]
    return ["unlimited" if one == resource.RLIM_INFINITY else one for one in soft]


def test_a_background_controller_that_slurm_refuses_says_so_at_once(new_slurm_relay: NewRelay) -> None:
    relay = new_slurm_relay(total=10)

    refused = relay.run("start", "--via", "daemon", "--set", "slurm.constraint=nope")

    refused.assert_refused(6, "Invalid feature specification")
