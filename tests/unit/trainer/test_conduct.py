"""Who is held: whoever brings little else than what no honest sender sends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainer.sharing.conduct import HARMLESS, LEAST, WINDOW, Conduct
from trainer.sharing.judge import Reason

BAD = sorted(set(Reason) - HARMLESS)


@given(st.lists(st.sampled_from([None, *sorted(HARMLESS)]), max_size=3 * WINDOW))
def test_nobody_is_held_for_what_happens_to_honest_senders(told: list[Reason | None]) -> None:
    conduct = Conduct()
    assert not any(conduct.note("alice", reason) for reason in told)


@given(st.lists(st.sampled_from([None, *sorted(Reason)]), max_size=3 * WINDOW))
def test_whoever_is_held_brought_more_bad_than_good_lately(told: list[Reason | None]) -> None:
    conduct, since = Conduct(), 0
    for number, reason in enumerate(told):
        if conduct.note("alice", reason):
            window = told[since : number + 1][-WINDOW:]
            assert len(window) >= LEAST
            assert sum(one in BAD for one in window) > len(window) / 2
            since = number + 1


def test_a_flood_is_held_at_once_and_nobody_else_is() -> None:
    conduct = Conduct()
    said = [conduct.note("mallory", Reason.FORMAT) for _ in range(LEAST)]
    assert said[:-1] == [""] * (LEAST - 1)
    assert said[-1] == f"{LEAST} of its last {LEAST} segments were refused, the last one for format"
    assert conduct.note("alice", Reason.FORMAT) == ""
