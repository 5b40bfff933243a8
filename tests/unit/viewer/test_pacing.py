"""How often what is read again: little at a time, and nothing waits for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from viewer.pacing import KEPT_LOOKS, REST, Pacer


class Hours:
    """A clock on which each reading takes its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.read: Counter[object] = Counter()

    def __call__(self) -> float:
        return self.now

    def reading(self, key: object, took_s: float) -> Callable[[], float]:
        def make() -> float:
            self.now += took_s
            self.read[key] += 1
            return self.now

        return make


def look(pacer: Pacer, hours: Hours, keys: int, took_s: float, rest_s: float, who: object = None) -> list[object]:
    """All `keys`, each of which has something new; then the rest between two looks."""
    pacer.begin_look(who)
    found = [pacer.read(key, hours.now, hours.reading((who, key), took_s)) for key in range(keys)]
    hours.now += rest_s
    return found


@pytest.mark.parametrize("rest_s", [2.0, 20.0, 60.0])
def test_of_many_that_live_none_waits_for_ever(rest_s: float) -> None:
    hours = Hours()
    pacer = Pacer(look_s=0.4, monotonic=hours)
    for _ in range(200):
        look(pacer, hours, 100, 0.02, rest_s)
    times = [hours.read[None, key] for key in range(100)]
    assert min(times) >= 1
    assert max(times) - min(times) <= 2


def test_where_a_look_has_no_time_at_all_one_after_the_other_is_read() -> None:
    hours = Hours()
    pacer = Pacer(look_s=0.0, monotonic=hours)
    for _ in range(30):
        look(pacer, hours, 30, 0.5, 2.0)
    assert [hours.read[None, key] for key in range(30)] == 30 * [1]


def test_after_a_reading_comes_a_rest_of_fifty_times_as_long() -> None:
    hours = Hours()
    pacer = Pacer(look_s=1.0, monotonic=hours)
    look(pacer, hours, 1, 0.5, REST * 0.5 - 0.1)
    look(pacer, hours, 1, 0.5, 0.2)
    assert hours.read[None, 0] == 1
    look(pacer, hours, 1, 0.5, 0.0)
    assert hours.read[None, 0] == 2


def test_what_cannot_be_read_is_not_read_all_the_time_either() -> None:
    hours = Hours()
    pacer = Pacer(look_s=1.0, monotonic=hours)

    def fail() -> None:
        hours.now += 0.1
        hours.read["fail"] += 1
        raise ValueError("damaged")

    for rest_s in (1.0, 10.0, 0.0):
        pacer.begin_look()
        with pytest.raises(ValueError, match="damaged"):
            pacer.read("key", "the same", fail)
        hours.now += rest_s
    assert hours.read["fail"] == 2


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    hours = Hours()
    pacer = Pacer(look_s=1.0, monotonic=hours)
    pacer.begin_look()
    pacer.read("page 1", 1, lambda: "large")
    for _ in range(2 * KEPT_LOOKS):
        pacer.begin_look()
        pacer.read("page 2", 1, lambda: "other")
    pacer.begin_look()
    assert pacer.read("page 1", 1, lambda: "anew") == "anew"
    assert pacer.read("page 2", 1, lambda: "anew") == "other"
