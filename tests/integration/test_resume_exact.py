"""Interrupted or not, a training comes to the same bits. On point masses, so that many interruptions fit a minute."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")

from slot_digest import gaps, slot_digest
from typed_trainings import attempts

from anchorleg.job import HANDED_OVER, attempt_numbers

pytestmark = pytest.mark.trainer
KILLED = -9
#: Vector steps of an uninterrupted run: 1200 steps of 4 environments.
VECTOR_STEPS = 300


def train(run_dir, *interruptions, **fields):
    """One attempt for each interruption, then one to the end; the slot's folder."""
    codes, printed = attempts("train_point_mass.py", run_dir, [*interruptions, {}], fields)
    expected = [KILLED if "SIGKILL" in signals.values() else HANDED_OVER for signals in interruptions]
    assert codes == [*expected, 0], printed
    return run_dir / "slots/0"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return slot_digest(train(tmp_path_factory.mktemp("uninterrupted")))


def test_the_reference_is_what_it_should_be(uninterrupted):
    assert uninterrupted["step"] == 1200
    assert uninterrupted["parts"]["run"][1]["updates"] == 331  # (1200 - 4 - 90) · 0.3
    assert gaps(uninterrupted["metrics"]) == []
    assert uninterrupted["metrics"][-1]["to"] == 1200
    assert sum(row["updates"] for row in uninterrupted["metrics"]) == 331
    assert [row["to"] for row in uninterrupted["metrics"] if "diagnostics" in row] == [280, 492, 632, 772, 980, 1120]
    assert [row["step"] for row in uninterrupted["evaluations"]] == [300, 600, 900, 1200]


def test_three_graceful_hand_overs_change_nothing(tmp_path, uninterrupted):
    slot = train(tmp_path, {61: "SIGUSR2"}, {77: "SIGTERM"}, {29: "SIGINT"})
    assert attempt_numbers(slot) == [0, 1, 2, 3]
    assert slot_digest(slot) == uninterrupted


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_kills_at_random_moments_change_nothing(tmp_path, uninterrupted, seed):
    moments = random.Random(seed)
    slot = train(tmp_path, *({moments.randrange(1, VECTOR_STEPS // 2): "SIGKILL"} for _ in range(4)))
    assert slot_digest(slot) == uninterrupted


def test_a_kill_right_after_a_hand_over_and_one_before_the_first_checkpoint_change_nothing(tmp_path, uninterrupted):
    slot = train(tmp_path, {3: "SIGKILL"}, {40: "SIGUSR2"}, {1: "SIGKILL"}, {2: "SIGKILL"})
    assert slot_digest(slot) == uninterrupted


def test_a_prolonged_run_has_the_parameters_of_one_that_was_long_from_the_start(tmp_path, uninterrupted):
    train(tmp_path, total_steps=610)
    prolonged = slot_digest(train(tmp_path))
    assert prolonged["replay"] == uninterrupted["replay"]
    for part in ("algorithm", "collector"):
        assert prolonged["parts"][part] == uninterrupted["parts"][part]
