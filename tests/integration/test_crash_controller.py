"""kill -9 of the controller: whatever it was doing, the next one goes on, no attempt runs twice, no slot is lost."""

from __future__ import annotations

import pytest
from relay import NewRelay


@pytest.mark.long
def test_killed_before_the_executor_heard_of_the_job_it_submits_the_same_attempt_again(new_relay: NewRelay) -> None:
    relay = new_relay(total=40, training={"max_runtime_seconds": 1})
    relay.killed("after-intent", "start")
    submissions = relay.ledger()["slots"][0]["attempts"][0]["submissions"]
    assert [s["state"] for s in submissions] == ["intent"]
    assert relay.attempts() == []

    done = relay.hurried("start")

    assert done.code == 0, done.words
    relay.assert_exactly_once(40)
    tokens = [event["token"] for event in relay.events("submission") if event["attempt"] == 0]
    assert len(tokens) == 1
    assert tokens[0] != submissions[0]["token"]


@pytest.mark.long
def test_killed_before_the_outcome_was_written_it_finds_its_job_again(new_relay: NewRelay) -> None:
    relay = new_relay(total=60, slots=2, training={"max_runtime_seconds": 1})
    relay.killed("after-submit", "start", call=2)
    states = [slot["attempts"][0]["submissions"][0]["state"] for slot in relay.ledger()["slots"]]
    assert states == ["intent", "intent"]

    done = relay.run("start")

    assert done.code == 0, done.words
    for slot in (0, 1):
        relay.assert_exactly_once(60, slot)
    first = [event for event in relay.events("submission") if event["attempt"] == 0]
    assert len({event["token"] for event in first}) == len(first) <= 2


@pytest.mark.long
@pytest.mark.parametrize("call", [1, 2, 4])
def test_killed_between_ticks_nothing_is_repeated(new_relay: NewRelay, call: int) -> None:
    relay = new_relay(total=60, slots=2, training={"max_runtime_seconds": 1})
    relay.killed("between-ticks", "start", call=call)

    done = relay.run("start")

    assert done.code == 0, done.words
    for slot in (0, 1):
        relay.assert_exactly_once(60, slot)
    tokens = [event["token"] for event in relay.events("submission")]
    assert len(set(tokens)) == len(tokens) == len(relay.attempts(0)) + len(relay.attempts(1))


@pytest.mark.long
def test_killed_again_and_again_the_run_still_finishes(new_relay: NewRelay) -> None:
    relay = new_relay(total=100, slots=2, training={"max_runtime_seconds": 1})
    for where in ("after-submit", "between-ticks", "after-submit", "between-ticks"):
        relay.killed(where, "start")

    done = relay.hurried("start")

    assert done.code == 0, done.words
    for slot in (0, 1):
        relay.assert_exactly_once(100, slot)


@pytest.mark.long
def test_with_its_true_patience_an_intent_that_never_became_a_job_is_submitted_again(new_relay: NewRelay) -> None:
    relay = new_relay(total=10)
    relay.killed("after-intent", "start")

    done = relay.run("start")

    assert done.code == 0, done.words
    relay.assert_exactly_once(10)
