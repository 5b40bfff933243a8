"""Who is on screen: the best, with patience, and whom the user pinned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewer.live.ranking import BETTER_BY, PATIENCE_S, OnScreen, lead, next_on_screen, ranked
from viewer.model import AgentRow

SHARE = st.none() | st.floats(0, 1)
AGENTS = st.lists(
    st.builds(
        AgentRow, slot=st.integers(0, 9), success=SHARE, training=SHARE, step=st.none() | st.integers(0, 10**7),
        at_work=st.booleans(),
    ),
    max_size=8, unique_by=lambda agent: agent.slot,
)  # fmt: skip
PINS = st.lists(st.integers(0, 9), max_size=4)
LOOKS = st.lists(st.tuples(AGENTS, st.sets(st.integers(0, 9)), st.floats(0.1, 20)), max_size=12)


def agent(slot: int, success: float | None, **more: object) -> AgentRow:
    return AgentRow(slot=slot, success=success, **more)  # type: ignore[arg-type]


def after(on_screen: OnScreen, agents: list[AgentRow], now: float, **more: object) -> OnScreen:
    asked = {"seats": 2, "pins": (), "may_leave": set(range(10)), **more}
    return next_on_screen(on_screen, agents, now=now, **asked)  # type: ignore[arg-type]


def test_an_evaluation_counts_before_training_and_training_before_steps() -> None:
    agents = [agent(0, None, step=9_000_000), agent(1, 0.2, training=0.9), agent(2, None, training=0.5), agent(3, 0.1)]
    assert [one.slot for one in ranked(agents)] == [2, 1, 3, 0]
    idle = agent(4, 1.0, at_work=False)
    assert ranked([*agents, idle])[-1] == idle


def test_patience_lasts_30_seconds_and_to_the_end_of_an_episode() -> None:
    on_screen = after(OnScreen(), [agent(0, 0.5), agent(1, 0.4), agent(2, 0.1)], 0)
    assert on_screen.shown == (0, 1)
    better = [agent(0, 0.5), agent(1, 0.4), agent(2, 0.46)]
    on_screen = after(on_screen, better, 10)
    assert after(on_screen, better, 10 + PATIENCE_S - 0.1).shown == (0, 1)
    waiting = after(on_screen, better, 10 + PATIENCE_S, may_leave={0})
    assert waiting.shown == (0, 1)
    assert after(waiting, better, 99, may_leave={1}).shown == (0, 2)


def test_who_falls_back_begins_anew() -> None:
    on_screen = after(OnScreen(), [agent(0, 0.4), agent(1, 0.1)], 0, seats=1)
    better, worse = [agent(0, 0.4), agent(1, 0.5)], [agent(0, 0.4), agent(1, 0.44)]
    on_screen = after(after(after(on_screen, better, 0, seats=1), worse, 20, seats=1), better, 25, seats=1)
    assert after(on_screen, better, 40, seats=1).shown == (0,)
    assert after(on_screen, better, 25 + PATIENCE_S, seats=1).shown == (1,)


@given(AGENTS, PINS, st.integers(1, 9), LOOKS)
def test_at_most_four_are_shown_and_pins_are_among_them(
    agents: list[AgentRow], pins: list[int], seats: int, looks: list[tuple[list[AgentRow], set[int], float]]
) -> None:
    on_screen, now = OnScreen(), 0.0
    for those, leaving, passed in [(agents, set(), 0.0), *looks]:
        now += passed
        on_screen = next_on_screen(on_screen, those, seats=seats, pins=pins, now=now, may_leave=leaving)
        slots = {one.slot for one in those}
        assert (
            len(on_screen.shown)
            == len(set(on_screen.shown))
            == min(len(slots), max(min(seats, 4), len(set(pins) & slots)))
        )
        assert set(pins) & slots <= set(on_screen.shown) <= slots


@given(AGENTS, st.integers(1, 4), LOOKS)
def test_nobody_goes_who_stays_good_enough_or_is_in_the_middle_of_an_episode(
    agents: list[AgentRow], seats: int, looks: list[tuple[list[AgentRow], set[int], float]]
) -> None:
    """Scores that differ by less than 5 points change nothing, and nobody leaves who may not."""
    on_screen, now = next_on_screen(OnScreen(), agents, seats=seats, pins=(), now=0, may_leave=()), 0.0
    first = on_screen.shown
    for _, leaving, passed in looks:
        now += passed
        before, on_screen = (
            on_screen,
            next_on_screen(on_screen, agents, seats=seats, pins=(), now=now, may_leave=leaving),
        )
        assert on_screen.shown == first
        assert set(before.shown) - set(on_screen.shown) <= leaving


@given(AGENTS, AGENTS.filter(bool), st.integers(1, 4))
def test_in_the_end_nobody_off_screen_is_much_better(before: list[AgentRow], those: list[AgentRow], seats: int) -> None:
    on_screen, now = next_on_screen(OnScreen(), before, seats=seats, pins=(), now=0, may_leave=()), 0.0
    for _ in range(20):
        now += PATIENCE_S
        on_screen = next_on_screen(on_screen, those, seats=seats, pins=(), now=now, may_leave=range(10))
    shown = [one for one in those if one.slot in on_screen.shown]
    for other in those:
        if other not in shown:
            assert all(lead(other, one) < BETTER_BY for one in shown)


@pytest.mark.parametrize("seats", [1, 2, 3])
def test_a_change_of_the_number_is_obeyed_at_once_and_places_stay(seats: int) -> None:
    agents = [agent(0, 0.1), agent(1, 0.3), agent(2, 0.2)]
    on_screen = after(OnScreen((2, 1, 0)), agents, 0, seats=seats, may_leave=())
    assert on_screen.shown == {1: (1,), 2: (2, 1), 3: (2, 1, 0)}[seats]
    assert set(after(on_screen, agents, 1, seats=1, pins=[0], may_leave=()).shown) == {0}
