"""One controller at a time: a second one is told who has the run, a stale one that wakes up changes nothing."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from relay import NewRelay, Relay

from orchestrator.processes import boot_id, host_name
from orchestrator.run.lease import TTL_S


def take_for_dead(relay: Relay) -> None:
    """Make the owner one of another machine, whose last beat we saw longer ago than its lease lasts."""
    ledger = relay.ledger()
    record = relay.run_dir / "lease" / str(ledger["epoch"])
    owner = json.loads(record.read_text())
    owner["process"] |= {"host": "login2", "boot_id": "its own"}
    record.write_text(json.dumps(owner))
    seen = {"epoch": ledger["epoch"], "beat": ledger["beat"], "at": time.monotonic() - TTL_S - 1.0}
    (relay.run_dir / "lease" / f"seen-{host_name()}-{boot_id()}.json").write_text(json.dumps(seen))


@pytest.mark.long
def test_a_second_start_names_the_owner_and_changes_nothing(new_relay: NewRelay) -> None:
    relay = new_relay(total=50, held_at=10)
    first = relay.spawn("start")
    relay.wait_for_step(3)
    run_file = (relay.run_dir / "run.json").read_bytes()
    began = json.loads((relay.run_dir / "lease" / "0").read_text())["since"]
    since = time.strftime("since %Y-%m-%d %H:%M:%S", time.localtime(began))

    for words in (("start",), ("start", "--via", "daemon"), ("tick",), ("start", "--set", "slots=3")):
        second = relay.run(*words)

        second.assert_refused(4, host_name(), f"process {first.pid}", since)
    assert (relay.run_dir / "run.json").read_bytes() == run_file
    relay.release()
    assert relay.ended(first) == 0
    relay.assert_exactly_once(50)


@pytest.mark.long
def test_a_stale_owner_that_wakes_up_changes_nothing(new_relay: NewRelay) -> None:
    relay = new_relay(total=50, slots=2, held_at=10)
    stale = relay.spawn("start")
    relay.wait_for_step(10, slot=0)
    relay.wait_for_step(10, slot=1)
    os.kill(stale.pid, signal.SIGSTOP)
    take_for_dead(relay)
    # By now the stale one has work to do: its jobs end, and it would submit.
    relay.hand_over(slot=0)
    relay.hand_over(slot=1)

    newer = relay.spawn("start")
    relay.wait_for(lambda: relay.ledger()["epoch"] == 1, "the newer ledger")
    relay.wait_for((relay.attempt_dir(1) / "claim").exists, "the second job")
    its_submissions = relay.submitted_by(0)
    os.kill(stale.pid, signal.SIGCONT)
    relay.release()

    assert relay.ended(stale) == 9
    said = relay.output_file(0).read_text()
    assert f"process {newer.pid}" in said
    assert "[lease.taken]" in said
    assert "Traceback" not in said
    assert relay.submitted_by(0) == its_submissions
    assert relay.ended(newer) == 0
    for slot in (0, 1):
        relay.assert_exactly_once(50, slot)
    mine = [json.loads(line) for line in (relay.run_dir / "events-0.jsonl").read_text().splitlines()]
    assert [event["attempt"] for event in mine if event["kind"] == "submission"] == [0, 0]
    assert not [event for event in mine if event["kind"] == "cancelled"]
    jobs = {path.parent.name for path in relay.run_dir.glob("jobs/*/local.json")}
    assert jobs == {event["token"] for event in relay.events("submission")}


@pytest.mark.long
def test_an_owner_that_was_held_up_while_a_job_looked_goes_on(new_relay: NewRelay) -> None:
    relay = new_relay(total=50, held_at=10)
    held_up = relay.spawn("start")
    relay.wait_for_step(10)
    os.kill(held_up.pid, signal.SIGSTOP)
    take_for_dead(relay)
    relay.hand_over()

    assert relay.run("tick").code == 0  # as an ending job of Slurm does it
    relay.wait_for((relay.attempt_dir(1) / "claim").exists, "the second job")
    os.kill(held_up.pid, signal.SIGCONT)
    relay.release()

    assert relay.ended(held_up) == 0, relay.output()
    assert "took over the run: continuing" in relay.output()
    relay.assert_exactly_once(50)
    assert relay.ledger()["epoch"] > 1
