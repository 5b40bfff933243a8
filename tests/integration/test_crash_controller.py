"""kill -9 of the controller: whatever it was doing, the next one goes on, no attempt runs twice, no slot is lost."""

from __future__ import annotations

import pytest
from relay import NewRelay


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
