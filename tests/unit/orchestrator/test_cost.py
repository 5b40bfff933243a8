"""What steps cost at a price that a person names: arithmetic on what `status` has measured."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from relay import NewRelay
from test_views import a_view, running

from orchestrator.screens.cost import cost_of, cost_words


def test_a_machine_at_one_an_hour_that_makes_a_million_steps_an_hour() -> None:
    view = a_view(running(rate=1e6 / 3600, step=0, total=3_000_000))
    assert cost_words(cost_of(view, 1.0), 1.0) == (
        "at 1 an hour and 277.8 steps/s: 1,000,000 steps ≈ 1.00; the 3,000,000 that are left ≈ 3.00 (in 3:00:00); "
        "restarts and idle time come on top"
    )


def test_slots_share_the_price_and_the_last_one_says_how_long_it_is_paid() -> None:
    view = a_view(
        running(0, rate=100.0, step=0, total=360_000),  # one hour
        running(1, rate=50.0, step=0, total=360_000),  # two
        running(2, state="waiting", rate=None),
    )
    cost = cost_of(view, 3.0)
    assert cost is not None
    assert (cost.steps_per_s, cost.left_s, cost.left) == (150.0, 7200.0, 6.0)
    assert cost.per_million_steps == pytest.approx(1e6 / 150 / 3600 * 3)


def test_what_the_price_of_the_rest_leaves_out_is_said() -> None:
    measured, done = running(0, rate=100.0, step=0, total=360_000), running(1, rate=None, step=9, total=9)
    waits = [running(number, state="waiting", rate=None, step=0, total=360_000) for number in (2, 3)]
    said = cost_words(cost_of(a_view(measured, done, *waits), 3.0), 3.0)
    assert "; not in it: 2 slots with more to do and no measured rate now; " in said
    assert "not in it" not in cost_words(cost_of(a_view(measured, done), 3.0), 3.0)


@pytest.mark.parametrize("state", ["finished", "failed", "dropped", "behind"])
def test_a_slot_that_is_over_has_nothing_more_to_do_however_far_it_came(state: str) -> None:
    measured, over = running(0, rate=100.0, step=0, total=360_000), running(1, state=state, rate=None, step=5, total=9)
    unknown = running(2, state=state, rate=None, step=None, total=None)
    assert "not in it" not in cost_words(cost_of(a_view(measured, over, unknown), 3.0), 3.0)


def test_a_program_that_does_not_say_its_length_has_a_price_a_step_only() -> None:
    cost = cost_of(a_view(running(0, rate=10.0), running(1, rate=10.0, total=None)), 1.0)
    assert cost is not None
    assert (cost.left_s, cost.left) == (None, None)
    assert "left" not in cost_words(cost, 1.0)


def test_without_a_measured_rate_nothing_is_made_up() -> None:
    assert cost_of(a_view(running(rate=None), running(1, rate=0.0)), 2.5) is None
    assert cost_words(None, 2.5) == "at 2.5 an hour: no running slot has told how fast it is yet"


@given(st.floats(0.001, 1e5), st.floats(0.001, 1e4), st.floats(1.5, 10.0))
def test_twice_the_price_costs_twice_and_twice_the_speed_half(rate: float, price: float, times: float) -> None:
    one = cost_of(a_view(running(rate=rate)), price)
    dear = cost_of(a_view(running(rate=rate)), price * times)
    fast = cost_of(a_view(running(rate=rate * times)), price)
    assert one is not None
    assert dear is not None
    assert fast is not None
    assert dear.per_million_steps == pytest.approx(one.per_million_steps * times)
    assert fast.per_million_steps == pytest.approx(one.per_million_steps / times)


def test_the_command_prices_what_it_shows_and_refuses_a_price_that_is_none(new_relay: NewRelay) -> None:
    relay = new_relay(total=10)
    assert relay.run("start").code == 0

    assert "at 1.006 an hour: no running slot has told" in relay.run("status", "--price", "1.006").out
    assert json.loads(relay.run("status", "--price", "2", "--json").out)["cost"] is None
    assert "cost" not in relay.status()
    for price in ("0", "nan", "inf"):
        relay.run("status", "--price", price).assert_refused(2, "[cli.price]")
    relay.run("status", "--price", "1", "--watch").assert_refused(2, "[cli.price]")
