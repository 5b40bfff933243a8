"""kill -9 of the controller at every write and every call of a whole run, from its first lease to its last ledger."""

from __future__ import annotations

import pytest
from killing import killed_at, killed_first_at
from relay import NewRelay, Relay

#: Every so many-th call in the quick suite: the whole is some 150 calls of 3 to 6 s each.
#: The whole, in parts that several workers can do, and a busy machine in its time.
SHARES = 4
#: Each must have been died at in the whole: writes by the name of their file, calls with what is after them.
ALWAYS = (
    "create lease/", "publish_folder", "publish_folder, after it", "write run.json", "make_folder jobs/", "write jobs/",
    "write ledger-", "append events-", "touch jobs/", "submit", "submit, after it", "poll", "poll, after it", "wake",
    "wake, after it", "cancel", "cancel, after it",
)  # fmt: skip


#: What a take-over reads and writes lies within so many calls.
AGAIN_AFTER = (1, 4, 9, 14)


def a_run(new_relay: NewRelay) -> Relay:
    """Two slots; two or three jobs each."""
    return new_relay(total=24, slots=2, training={"max_runtime_seconds": 0.6})


@pytest.mark.long
@pytest.mark.parametrize("share", range(1, SHARES + 1))
def test_killed_at_every_call_of_a_whole_run_it_goes_on_exactly_once(new_relay: NewRelay, share: int) -> None:
    assert len(killed_at(a_run(new_relay), share, SHARES)) > 50 // SHARES


@pytest.mark.long
@pytest.mark.parametrize("place", ALWAYS)
def test_killed_at_each_kind_of_call_it_goes_on_exactly_once(new_relay: NewRelay, place: str) -> None:
    # No hand-over by the clock, so that a stop surely meets a running job.
    relay = new_relay(total=24, slots=2)
    killed_first_at(relay, place)

    # The claim makes a second job of an attempt harmless; there must be none all the same.
    assert list(relay.run_dir.glob("slots/*/attempts/*/duplicate-*.json")) == []


@pytest.mark.long
@pytest.mark.parametrize("again", AGAIN_AFTER)
def test_its_successor_may_be_killed_too(new_relay: NewRelay, again: int) -> None:
    places = killed_at(a_run(new_relay), 3, 5, again)

    assert len(places) > 20
