"""Submitting is at-least-once; an attempt runs once: of two jobs for it one runs and the other says so."""

from __future__ import annotations

import contextlib
import json
import os
import signal

import pytest
from daemons import family_of
from relay import PROGRAMS, NewRelay, Relay

from orchestrator.processes import ProcessId, is_alive


def job_record(relay: Relay, token: str) -> dict[str, object]:
    return dict(json.loads((relay.run_dir / "jobs" / token / "local.json").read_text()))


def test_the_second_job_of_an_attempt_ends_at_once_and_the_controller_stays_with_the_first(
    new_relay: NewRelay,
) -> None:
    relay = new_relay(total=60, held_at=10)
    with relay.watched():
        controller = relay.spawn("start")
        relay.wait_for_step(3)

        token = relay.submit_by_hand(0, "deadbeef")

        relay.wait_for(lambda: relay.duplicates(0), "the duplicate's word")
        relay.release()
        assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(60)
    winner = relay.read("claim", 0)["token"]
    assert [(d["token"], d["winner"]["token"]) for d in relay.duplicates(0)] == [(token, winner)]
    relay.wait_for(lambda: job_record(relay, token)["raw_state"] != "RUNNING", "the duplicate's end")
    assert (job_record(relay, token)["raw_state"], job_record(relay, token)["exit_code"]) == ("COMPLETED", 0)
    assert relay.read("exit.json", 0)["token"] == winner
    assert [event["verdict"] for event in relay.events("ended")] == ["finished"]


@pytest.mark.long
def test_the_controller_adopts_the_job_that_runs_when_its_own_is_the_duplicate(new_relay: NewRelay) -> None:
    relay = new_relay(total=60, held_at=10)
    relay.killed("after-intent", "start")
    mine = relay.ledger()["slots"][0]["attempts"][0]["submissions"][0]["token"]
    token = relay.submit_by_hand(0, "deadbeef")
    relay.wait_for_step(3)
    relay.submit_again(mine)
    relay.wait_for(lambda: relay.duplicates(0), "the duplicate's word")

    with relay.watched() as seen:
        controller = relay.spawn("start")
        relay.wait_for(lambda: any(slot["state"] == "running" for view in seen for slot in view["slots"]), "the look")
        relay.release()
        assert relay.ended(controller) == 0, relay.output()

    relay.assert_exactly_once(60)
    assert relay.read("claim", 0)["token"] == token
    assert relay.read("exit.json", 0)["token"] == token
    assert [event["token"] for event in relay.events("adopted")] == [token]
    job_ids = {slot["job_id"] for view in seen for slot in view["slots"] if slot["state"] == "running"}
    supervisor = job_record(relay, token)["supervisor"]
    assert isinstance(supervisor, dict)
    assert job_ids == {str(supervisor["pid"])}
    assert relay.attempts() == [0]


@pytest.mark.long
def test_a_controller_that_forgot_everything_finds_its_jobs_again(new_relay: NewRelay) -> None:
    relay = new_relay(total=80, slots=2, held_at=10)
    relay.killed("between-ticks", "start")
    relay.wait_for_step(3, slot=0)
    relay.wait_for_step(3, slot=1)
    for path in relay.run_dir.glob("ledger-*.json"):
        path.unlink()

    controller = relay.spawn("start")
    relay.wait_for(lambda: len(relay.events("adopted")) == 2, "both jobs to be taken in")
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    for slot in (0, 1):
        relay.assert_exactly_once(80, slot)
        assert relay.attempts(slot) == [0]


@pytest.mark.long
def test_a_job_that_the_scheduler_runs_twice_runs_once_and_its_attempt_has_ended(new_relay: NewRelay) -> None:
    relay = new_relay(total=60, held_at=10)
    controller = relay.spawn("start", driver=(str(PROGRAMS / "impatient.py"), "silent=2"))
    relay.wait_for_step(5)
    os.kill(controller.pid, signal.SIGSTOP)
    token = relay.read("claim", 0)["token"]
    supervisor = job_record(relay, token)["supervisor"]
    assert isinstance(supervisor, dict)
    kill_job(relay, ProcessId(**supervisor))
    at = relay.counted()

    relay.submit_again(token)
    relay.wait_for(lambda: relay.duplicates(0), "the second run's word")
    relay.release()
    os.kill(controller.pid, signal.SIGCONT)

    assert relay.ended(controller) == 0, relay.output()
    assert [d["token"] for d in relay.duplicates(0)] == [token]
    assert not (relay.attempt_dir(0) / "exit.json").exists()
    assert [n for attempt, n in relay.journal(0) if attempt == 0] == list(range(1, at + 1))
    assert relay.attempts() == [0, 1]
    assert [event["verdict"] for event in relay.events("ended")] == ["node failed", "finished"]


@pytest.mark.long
def test_the_second_run_of_a_job_takes_nothing_from_the_first_one(new_relay: NewRelay) -> None:
    relay = new_relay(total=60, held_at=10)
    controller = relay.spawn("start", driver=(str(PROGRAMS / "impatient.py"), "silent=600"))
    relay.wait_for_step(5)

    relay.submit_again(relay.read("claim", 0)["token"])
    relay.wait_for(lambda: relay.duplicates(0), "the second run's word")
    relay.wait_for(lambda: "started this job twice" in str(relay.status()["slots"][0]), "the controller's doubts")
    assert relay.attempts() == [0]
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    assert relay.attempts() == [0]
    relay.assert_exactly_once(60)


def kill_job(relay: Relay, supervisor: ProcessId) -> None:
    """SIGKILL the supervisor and everything below it, as a node that loses its power would."""
    family = family_of(supervisor.pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # all stand still first: no parent writes down a child's death
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    relay.wait_for(lambda: not is_alive(supervisor), "the death of the job")
