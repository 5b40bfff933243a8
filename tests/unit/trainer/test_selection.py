from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("metaworld")

from published import draft_of, nets_for, training_of
from refused import refused

from syncd import store
from trainer.sharing.selection import STALE_S, Choice, key_of, pick

pytestmark = pytest.mark.trainer
TRAINING = training_of()
DRAFT = draft_of(TRAINING, nets_for(TRAINING))
LATEST, BEST = Choice("latest"), Choice("best")


def newest(slot, at, success=None, run="a-00000000"):
    score = None if success is None else store.Score(step=1, mean_success=success, goals_per_task=50)
    return DRAFT.model_copy(update={"run_id": run, "slot": slot, "created_at": float(at), "score": score})


def test_latest_is_the_slot_that_published_last_and_stays_until_it_is_stale():
    assert pick([newest(0, 10), newest(1, 20)], LATEST, None).slot == 1
    assert pick([newest(0, 30), newest(1, 20)], LATEST, ("a-00000000", 1)).slot == 1
    assert pick([newest(0, 20 + STALE_S), newest(1, 20)], LATEST, ("a-00000000", 1)).slot == 0
    assert pick([], LATEST, None) is None


def test_best_changes_only_for_what_is_better_by_more_than_chance():
    close, clear = newest(1, 10, success=0.62), newest(2, 10, success=0.8)
    mine = newest(0, 10, success=0.6)
    assert pick([mine, close], BEST, key_of(mine)).slot == 0
    assert pick([mine, close, clear], BEST, key_of(mine)).slot == 2
    assert pick([mine, close], BEST, None).slot == 1


def test_without_any_evaluation_best_is_the_latest_and_one_evaluation_ends_that():
    assert pick([newest(0, 10), newest(1, 20)], BEST, None).slot == 1
    assert pick([newest(0, 10, success=0.0), newest(1, 20)], BEST, ("a-00000000", 1)).slot == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0, 5000), st.none() | st.floats(0, 1)), unique_by=lambda row: row[0]
    ),
    st.sampled_from([LATEST, BEST]),
    st.none() | st.integers(0, 3),
)
def test_a_choice_is_stable_where_nothing_changes(rows, choice, current):
    found = [newest(*row) for row in rows]
    first = pick(found, choice, None if current is None else ("a-00000000", current))
    assert (first is None) == (not found)
    if first is not None:
        assert pick(found, choice, key_of(first)) == first


@pytest.mark.parametrize(
    ("text", "takes"), [("a", {0, 1}), ("a-00000000", {0, 1}), ("a/1", {1}), ("a-00000000/0", {0}), ("b", set())]
)
def test_a_run_is_named_by_its_name_or_its_id(tmp_path, text, takes):
    places = [store.Shared(tmp_path).slot("a-00000000", slot) for slot in (0, 1)]
    assert {place.slot for place in places if Choice.parse(text).takes(place)} == takes


@pytest.mark.parametrize("text", ["", "/1", "a/b", "a/", "a/1/2"])
def test_nonsense_is_one_sentence(text):
    with refused("cli.policy-unknown"):
        Choice.parse(text)


def returning(slot, mean, error):
    score = store.Score(step=1, mean_return=mean, return_error=error, goals_per_task=20)
    return DRAFT.model_copy(update={"slot": slot, "run_id": "a-00000000", "created_at": 10.0, "score": score})


def test_where_no_success_is_told_the_best_has_the_highest_return_by_more_than_its_noise():
    mine, close, clear = returning(0, 400.0, 20.0), returning(1, 420.0, 20.0), returning(2, 499.0, 0.5)
    assert pick([mine, close], BEST, None).slot == 1
    assert pick([mine, close], BEST, key_of(mine)).slot == 0
    assert pick([mine, close, clear], BEST, key_of(mine)).slot == 2
    assert pick([returning(0, -3.0, 1.0), newest(1, 10)], BEST, None).slot == 0, "one without an evaluation"
    assert pick([clear, newest(3, 10, success=0.1)], BEST, None).slot == 3, "what tells of success"


def test_a_score_that_nobody_can_compute_with_is_compared_all_the_same():
    mine, empty = newest(0, 10, success=0.6), newest(1, 10, success=0.9)
    policy = empty.policy.model_copy(update={"spaces": {**empty.policy.spaces, "tasks": []}})
    assert pick([mine, empty.model_copy(update={"policy": policy})], BEST, key_of(mine)).slot == 1
    endless = empty.model_copy(update={"score": empty.score.model_copy(update={"goals_per_task": 10**400})})
    assert pick([mine, endless], BEST, key_of(mine)).slot == 1
    assert pick([returning(0, 1.0, 1e200), returning(1, 2.0, 0.5)], BEST, ("a-00000000", 0)).slot == 0
