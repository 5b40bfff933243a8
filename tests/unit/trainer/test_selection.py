"""Which slot actors play for: the newest, the best, or the one that needs experience most."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("metaworld")

from published import draft_of, nets_for, training_of
from refused import refused

from syncd import store
from trainer.sharing.notice import USABLE
from trainer.sharing.selection import (
    FIRST_WORD_S,
    STALE_S,
    Choice,
    Need,
    is_over,
    key_of,
    parse,
    pick,
    pick_needed,
    why_none_takes,
    why_not_needed,
)

pytestmark = pytest.mark.trainer

TRAINING = training_of()
DRAFT = draft_of(TRAINING, nets_for(TRAINING))
LATEST, BEST = Choice("latest"), Choice("best")
RUN = "a-00000000"


def newest(slot, at=10, success=None, **score):
    score = {"mean_success": success} if success is not None else score
    told = store.Score(step=1, goals_per_task=50, **score) if score else None
    return DRAFT.model_copy(update={"run_id": RUN, "slot": slot, "created_at": float(at), "score": told})


def returning(slot, mean, error):
    return newest(slot, mean_return=mean, return_error=error)


@pytest.mark.parametrize(
    ("found", "choice", "current", "slot"),
    [
        ([newest(0, 10), newest(1, 20)], LATEST, None, 1),
        ([newest(0, 30), newest(1, 20)], LATEST, 1, 1),
        ([newest(0, 20 + STALE_S), newest(1, 20)], LATEST, 1, 0),
        ([newest(0, success=0.6), newest(1, success=0.62)], BEST, 0, 0),
        ([newest(0, success=0.6), newest(1, success=0.62), newest(2, success=0.8)], BEST, 0, 2),
        ([newest(0, success=0.6), newest(1, success=0.62)], BEST, None, 1),
        ([newest(0, 10), newest(1, 20)], BEST, None, 1),
        ([newest(0, 10, success=0.0), newest(1, 20)], BEST, 1, 0),
        ([returning(0, 400.0, 20.0), returning(1, 420.0, 20.0)], BEST, 0, 0),
        ([returning(0, 400.0, 20.0), returning(1, 499.0, 0.5)], BEST, 0, 1),
        ([returning(0, 499.0, 0.5), newest(1, success=0.1)], BEST, 0, 1),
        ([returning(0, 1.0, 1e200), returning(1, 2.0, 0.5)], BEST, 0, 0),
    ],
)  # fmt: skip
def test_a_slot_is_left_for_one_that_is_newer_or_better_by_more_than_chance(found, choice, current, slot):
    assert pick(found, choice, None if current is None else (RUN, current)).slot == slot


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0, 5000), st.none() | st.floats(0, 1)), unique_by=lambda row: row[0]
    ),
    st.sampled_from([LATEST, BEST]),
    st.none() | st.integers(0, 3),
)
def test_a_choice_is_stable_where_nothing_changes(rows, choice, current):
    found = [newest(*row) for row in rows]
    first = pick(found, choice, None if current is None else (RUN, current))
    assert (first is None) == (not found)
    if first is not None:
        assert pick(found, choice, key_of(first)) == first


@pytest.mark.parametrize(
    ("text", "takes"), [("a", {0, 1}), ("a-00000000", {0, 1}), ("a/1", {1}), ("a-00000000/0", {0}), ("b", set())]
)
def test_a_run_is_named_by_its_name_or_its_id(tmp_path, text, takes):
    places = [store.Shared(tmp_path).slot(RUN, slot) for slot in (0, 1)]
    assert {place.slot for place in places if Choice.parse(text).takes(place)} == takes


@pytest.mark.parametrize("text", ["", "/1", "a/b", "a/", "a/1/2"])
def test_nonsense_is_one_sentence(text):
    with refused("cli.policy-unknown"):
        Choice.parse(text)


def need(rows=0, *, steps=7000, **more):
    return Need(**{"takes": True, "over": False, "rows": rows, "steps": steps, "heard_s": 1.0} | more)


OVER = need(takes=False, over=True)


def chosen(needs, who="ann", current=None):
    found = pick_needed([newest(slot) for slot in range(len(needs))], in_run(*needs), current, who)
    return None if found is None else found.slot


def in_run(*needs):
    return {(RUN, slot): one for slot, one in enumerate(needs)}


def test_the_slot_that_had_least_lately_is_chosen_by_everybody_and_a_full_one_comes_last():
    assert {chosen([need(3000), need(600), need(1500)], f"friend {number}") for number in range(20)} == {1}
    assert chosen([need(3000, full=True), need(3000)]) == 1
    assert chosen([need(3000, full=True)]) == 0
    assert chosen([]) is None


def test_a_class_spreads_over_slots_that_need_the_same():
    found = Counter(chosen([need(), need(1), need(2)], f"friend {number}") for number in range(300))
    assert min(found.values()) > 60
    assert len(found) == 3


def test_one_stays_until_the_slot_ends_or_takes_nothing():
    assert chosen([need(3000), need()], current=(RUN, 0)) == 0
    for gone in (OVER, need(takes=False), need(heard_s=STALE_S)):
        assert chosen([gone, need(3000)], current=(RUN, 0)) == 1


def test_a_full_slot_is_left_by_half_of_those_who_are_there_for_one_that_needs_something():
    def who_leave(other):
        where = [chosen([need(3000, full=True), other], f"friend {number}", (RUN, 0)) for number in range(300)]
        return where.count(1)

    assert 100 < who_leave(need(3000)) < 200
    assert who_leave(need(3000, full=True)) == 0


def test_why_nothing_is_needed():
    words = [
        (need(full=True), "as much as it can use"), (OVER, "complete"), (need(takes=False), "cannot learn"),
        (need(), None), (None, None), (need(full=True, heard_s=STALE_S), None),
    ]  # fmt: skip
    for one, expected in words:
        found = why_not_needed(one)
        assert found is None if expected is None else expected in found


def test_when_a_training_is_over_and_what_is_waited_for_till_then():
    done = need(takes=False, over=True, heard_s=60.0, slots=2)  # the other one waits for its first job
    silent = in_run(need(heard_s=1800), OVER)
    for needs, ends, words in (
        ({}, False, "collaboration.enabled"),
        (silent, False, "1 unfinished slot has reported for 30 min"),
        (in_run(OVER), True, "complete"),
        (in_run(done), False, "the first job"),
        (in_run(done, done), True, "complete"),
        (in_run(need(takes=False, over=True, heard_s=FIRST_WORD_S + 1, slots=2)), True, "complete"),
        ({**in_run(done, done), ("b-00000000", 0): done}, False, "the first job"),
    ):
        assert is_over(needs) is ends
        assert words in why_none_takes(needs)


def test_a_slot_is_as_needy_as_it_can_use_rows_and_odd_rows_say_nothing():
    assert [need(1400, usable=usable).level for usable in (USABLE, 0.4, 0.2, 0.0)] == [4, 5, 10, 10]
    assert (need(steps=0).level, need(10**6).level) == (0, 10)
    row = {"takes": True, "over": False, "rows": 1, "steps": 1}
    for said, usable in ((0.4, 0.4), (0, 0.0), ("much", USABLE), (-1.0, USABLE), (7.0, USABLE), (float("nan"), USABLE)):
        assert parse(row | {"usable": said}, 1.0).usable == usable
    for odd in ({}, row | {"takes": 1}, {"takes": True}):
        assert parse(odd, 0.0) is None
