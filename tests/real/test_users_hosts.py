"""Two controllers of one run at once, on two machines that share its folder and its Slurm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any

import pytest
from daemons import PATIENCE_S
from needs import need
from relay import PROGRAMS, NewRelay, Relay
from slurm_cluster import SlurmCluster
from slurm_relay import ever, on_slurm

from orchestrator.processes import host_name

pytestmark = pytest.mark.slurm

#: Some twenty ticks of the tests' controllers; in earnest three minutes.
TTL_S = 10.0
ELSEWHERE = (str(PROGRAMS / "elsewhere.py"), "login2", str(TTL_S))


def submissions_of(relay: Relay, epoch: int) -> list[dict[str, Any]]:
    """What the owner of an epoch submitted, by its own history."""
    path = relay.run_dir / f"events-{epoch}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["kind"] == "submission"]


@pytest.mark.long
def test_only_a_silent_owner_is_taken_over_and_its_return_changes_nothing(
    new_relay: NewRelay, slurm: SlurmCluster
) -> None:
    unshared = subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False, timeout=PATIENCE_S)
    need("a second host name on one machine", [] if unshared.returncode == 0 else ["a root that may unshare --uts"])
    relay = on_slurm(new_relay, slurm, slots=2, total=60, held_at=20)
    first = relay.spawn("start")
    relay.wait_for_step(20, slot=0)
    relay.wait_for_step(20, slot=1)

    def tried() -> int:
        """`start` on the other machine; its exit code, -1 where it has the run."""
        epoch = relay.ledger()["epoch"]
        child = relay.spawn("start", driver=ELSEWHERE)
        relay.wait_for(lambda: child.poll() is not None or relay.ledger()["epoch"] > epoch, "a refusal, or a new owner")
        return -1 if child.poll() is None else child.returncode

    assert tried() == 4
    assert f"process {first.pid} on {host_name()}" in relay.output()
    os.kill(first.pid, signal.SIGSTOP)
    silent_since = time.monotonic()
    answers = []
    while (answer := tried()) != -1:
        answers.append(answer)
        assert time.monotonic() < silent_since + PATIENCE_S
    newer, epoch = relay.children[-1], relay.ledger()["epoch"]
    assert answers  # one who was silent for less than `TTL_S` was believed
    assert set(answers) == {4}
    its_submissions = submissions_of(relay, 0), relay.submitted_by(0)
    relay.hand_over(slot=0)
    relay.wait_for((relay.attempt_dir(1) / "claim").exists, "a job of the newer owner")
    relay.wait_for(lambda: submissions_of(relay, epoch), "its word of that")
    assert relay.read("claim", 1)["token"] in relay.submitted_by(epoch)
    os.kill(first.pid, signal.SIGCONT)

    assert relay.ended(first) == 9
    said = relay.output_file(0).read_text()
    assert f"process {newer.pid} on login2" in said
    assert "[lease.taken]" in said
    relay.release()
    assert relay.ended(newer) == 0, relay.output()
    assert (submissions_of(relay, 0), relay.submitted_by(0)) == its_submissions
    for slot in (0, 1):
        relay.assert_exactly_once(60, slot)
    assert (relay.attempts(0), relay.attempts(1)) == ([0, 1], [0])
    assert len(ever(slurm, relay)) == len(relay.attempts(0)) + len(relay.attempts(1))
