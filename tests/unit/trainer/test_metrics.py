from __future__ import annotations

import json
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from slot_digest import gaps

from anchorleg.files import write_json
from trainer.algorithms.common.off_policy import earned
from trainer.history.read import Journal, lines, read, read_evaluations
from trainer.state import State
from trainer.training.meter import Meter
from trainer.training.run import crossed

pytestmark = pytest.mark.trainer
NAMES, TASKS = ("loss",), ("reach-v3", "push-v3")


def a_slot(tmp_path, attempts):
    """attempts: (parent attempt, parent step, rows of metrics, rows of evaluations)."""
    for number, (parent, step, rows, evaluations) in enumerate(attempts):
        folder = tmp_path / "attempts" / str(number)
        folder.mkdir(parents=True)
        record = {"attempt": parent, "step": step, "checkpoint": None if parent is None else f"{step:012d}"}
        write_json(folder / "parent.json", record)
        text = "".join(json.dumps({"from": a, "to": b, "by": number}) + "\n" for a, b in rows)
        (folder / "metrics.jsonl").write_text(text)
        text = "".join(json.dumps({"step": s, "by": number, "mean_success": 0.0}) + "\n" for s in evaluations)
        (folder / "evaluations.jsonl").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("attempts", "metrics", "evaluations"),
    [
        # An attempt is cut at its successor's parent.
        (
            [(None, 0, [(0, 10), (10, 20), (20, 30)], []), (0, 24, [(20, 30), (30, 40)], [])],
            [(10, 0), (20, 0), (30, 1), (40, 1)], [],
        ),
        # Attempt 1 died before its first checkpoint.
        (
            [(None, 0, [(0, 10)], []), (0, 10, [(10, 20)], []), (0, 10, [(10, 20), (20, 30)], [])],
            [(10, 0), (20, 2), (30, 2)], [],
        ),
        # No evaluation is lost or counted twice at a hand-over.
        (
            [(None, 0, [], [10, 20]), (0, 20, [], [30, 40]), (1, 30, [], [40, 50])],
            [], [(10, 0), (20, 0), (30, 1), (40, 2), (50, 2)],
        ),
        # The successor evaluates what it started from, and what its elders left.
        ([(None, 0, [], [10]), (0, 20, [], [20, 30])], [], [(10, 0), (20, 1), (30, 1)]),
        ([(None, 0, [], [10]), (0, 25, [], [20, 30]), (1, 40, [], [40])], [], [(10, 0), (20, 1), (30, 1), (40, 2)]),
        # Attempts 1 and 3 made no checkpoint: their successors began where they did. Attempt 3's 40 is of nobody's.
        (
            [(None, 0, [], []), (0, 20, [], [10]), (0, 20, [], [20]), (2, 30, [], [30, 40]), (2, 30, [], [])],
            [], [(10, 1), (20, 2), (30, 3)],
        ),
        # Attempt 2 walked back to step 10: attempt 1 began at a step 20 that is no longer the line's.
        ([(None, 0, [], []), (0, 20, [], [10, 20]), (0, 10, [], [])], [], [(10, 1)]),
    ],
    ids=range(7),
)  # fmt: skip
def test_each_step_and_each_evaluation_counts_once_over_all_attempts(tmp_path, attempts, metrics, evaluations):
    slot = a_slot(tmp_path, attempts)
    assert [(row["to"], row["by"]) for row in read(slot)] == metrics
    assert [(row["step"], row["by"]) for row in read_evaluations(slot)] == evaluations
    assert gaps(read(slot)) == []


def test_a_damaged_decision_of_an_attempt_beside_the_line_is_told_by_its_path(tmp_path):
    slot = a_slot(tmp_path, [(None, 0, [], [10]), (0, 10, [], []), (0, 10, [], [])])
    damaged = slot / "attempts/1/parent.json"
    damaged.write_text("[]")
    with pytest.raises(ValueError, match=f"^{damaged}, which says where attempt 1 began, is damaged: restore it"):
        read_evaluations(slot)


def test_where_an_algorithm_has_come_to_measure_more_its_means_begin_anew():
    before, after = Meter(NAMES, TASKS), Meter((*NAMES, "kl"), TASKS)
    before.add_update([1.0])
    after.load(before.state())
    after.add_update([2.0, 0.5])
    row = after.row(40, {})
    assert (row["updates"], row["loss"], row["kl"]) == (1, 2.0, 0.5)


def test_what_else_is_told_of_an_episode_is_in_the_row_also_after_a_checkpoint():
    first, second = (Meter(NAMES, TASKS, ("away", "steps")) for _ in range(2))
    told = np.array([[0.5, 9.0], [0.0, 0.0], [0.25, np.nan]])
    for meter in (first, second):
        if meter is second:
            meter.load(State({}, json.loads(json.dumps(first.state().numbers))))
        finished, task = np.array([True, False, True]), np.array([1, 0, 1])
        meter.add_episodes(finished, task, np.zeros(3), np.array([True, True, False]), told)
    more = np.array([[1.0, np.nan]] * 3)
    second.add_episodes(np.array([True, False, False]), np.array([0, 0, 0]), np.zeros(3), np.zeros(3, np.bool_), more)
    rows = second.row(40, {})["tasks"]
    assert rows["push-v3"] == {"episodes": 4, "success": 0.5, "return": 0.0, "away": 0.375, "steps": 9.0}
    assert rows["reach-v3"] == {"episodes": 1, "success": 0.0, "return": 0.0, "away": 1.0}  # no episode had steps
    assert second.row(50, {})["tasks"]["push-v3"] == {"episodes": 0}


@given(st.lists(st.floats(-1e6, 1e6), max_size=30), st.integers(0, 30))
def test_a_meter_that_went_through_a_checkpoint_sums_the_same_digits(values, cut):
    whole, first = Meter(NAMES, TASKS), Meter(NAMES, TASKS)
    for value in values:
        whole.add_update([value])
    for value in values[:cut]:
        first.add_update([value])
    second = Meter(NAMES, TASKS)
    second.load(State({}, json.loads(json.dumps(first.state().numbers))))
    for value in values[cut:]:
        second.add_update([value])
    assert second.row(9, {}) == whole.row(9, {})


def test_rows_that_a_full_disk_refuses_wait_and_come_whole(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.add({"to": 1})

    def half(fd, data, real=os.write):
        if len(data) < 12:
            raise OSError(28, "No space left on device")
        return real(fd, data[:5])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        journal.add({"to": 2})
        assert [row["to"] for row in lines(tmp_path / "metrics.jsonl")] == [1]
    journal.add({"to": 3})
    assert [row["to"] for row in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    assert (tmp_path / "metrics.jsonl").read_bytes().count(b"\n") == 3


@given(st.integers(1, 60), st.integers(0, 500), st.sampled_from([0.1, 0.3, 1.0, 2.5, 0.07]), st.integers(1, 60))
def test_updates_are_earned_by_transitions_whatever_the_number_of_environments(n, random_steps, rate, vector_steps):
    total = sum((earned(i * n, (i + 1) * n, random_steps, rate) for i in range(vector_steps)), Fraction(0))
    assert total == max(0, n * vector_steps - random_steps) * Fraction(str(rate))


@given(st.integers(1, 60), st.integers(1, 200), st.integers(1, 100))
def test_there_is_one_barrier_for_each_multiple_at_most_a_vector_step_late(n, interval, vector_steps):
    barriers = [(i + 1) * n for i in range(vector_steps) if crossed(i * n, (i + 1) * n, interval)]
    assert all(step % interval < n for step in barriers)
    assert {step // interval for step in barriers} >= set(
        range(max(1, n // interval), n * vector_steps // interval + 1)
    ) or n > interval
