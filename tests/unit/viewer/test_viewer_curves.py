"""Curves for the page: few points, none that lies, and the same smoothing as `trainer plot`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trainer.training.meter import Meter
from viewer.curves import (
    MOST_MEASURES,
    MOST_POINTS,
    MOST_ROWS,
    MOST_TASKS,
    line_of,
    mean_line,
    slot_curves,
    thinned,
)
from viewer.learning import Learned, curves_of, evaluation_rows, learned_from, task_rows
from viewer.sources.shared import agent_rows

TASKS = ("push-v3", "reach-v3")


def a_row(to: int, success: float | None = 0.5, episodes: int = 10, **more: Any) -> dict[str, Any]:
    told = {"episodes": episodes} | ({"success": success, "return": 100 * success} if success is not None else {})
    return {"from": to - 100, "to": to, "at": 0.0, "tasks": dict.fromkeys(TASKS, told), **more}


def an_evaluation(step: int, success: float, **more: Any) -> dict[str, Any]:
    share = dict.fromkeys(TASKS, success)
    row = {"step": step, "success": share, "returns": dict.fromkeys(TASKS, 10 * success), "mean_success": success}
    return row | {"goals_per_task": 50, "steps_to_success": {TASKS[0]: 80.0}, "score": "success"} | more


def learned(slot: int, rows: list[dict[str, Any]], *evaluations: dict[str, Any]) -> Learned:
    return learned_from(slot, "", rows, evaluations)


def test_a_point_pools_episodes_and_not_rows() -> None:
    rows = [a_row(100 * k, 1.0, 1) for k in range(1, 11)] + [a_row(1100, 0.0, 9)]
    line = line_of(slot_curves(rows), 0, "slot 0", "success", "")
    assert line.values[-1] == pytest.approx(1 / 10)  # two rows: one success, nine failures


def test_a_row_without_an_episode_leaves_no_point_and_no_zero() -> None:
    line = line_of(slot_curves([a_row(100, None, 0), a_row(200, 1.0)]), 0, "slot 0", "success", "")
    assert line.values == (None, 1.0)


def test_a_long_training_becomes_few_points_with_its_first_and_its_last() -> None:
    line = line_of(slot_curves([a_row(100 * k) for k in range(1, 5001)]), 0, "slot 0", "success", "")
    assert len(line.steps) <= MOST_POINTS
    assert (line.steps[0], line.steps[-1]) == (800, 500_000)  # of eight rows each
    assert thinned(3) == [0, 1, 2]


def test_the_mean_goes_as_far_as_all_slots_have_got_and_tells_the_lowest_and_the_highest() -> None:
    far, near = ([a_row(100 * k, share) for k in range(1, last)] for share, last in ((1.0, 30), (0.0, 11)))
    line = mean_line([slot_curves(far), slot_curves(near)], "success", "")
    assert line is not None
    assert line.steps[-1] == 1000
    assert (line.values[-1], line.low[-1], line.high[-1]) == (0.5, 0.0, 1.0)


def test_where_no_success_is_told_the_curves_show_returns() -> None:
    meter = Meter((), ("CartPole",))
    meter.add_episodes(np.full(3, True), np.zeros(3, np.int64), np.full(3, 20.0), np.full(3, False))
    row = meter.row(100, {})
    assert row["tasks"]["CartPole"]["success"] == 0.0, "nobody told of any"
    judged = an_evaluation(100, 0.0, score="return") | {"success": {"CartPole": 0.0}, "returns": {"CartPole": 21.0}}
    slot = learned(0, [row], judged)
    panel = curves_of([slot], "", "", 0, alike=True)
    assert (panel.measure, panel.measures) == ("return", ("return", "updates"))
    assert [(line.kind, line.values) for line in panel.lines] == [("slot", (20.0,)), ("evaluation", (21.0,))]
    assert panel.about.endswith("; dots: evaluations.")
    assert evaluation_rows([slot])[0].value == 21.0
    for measure in ("return", panel.measure, "updates"):
        told = task_rows([slot], measure=measure)[0]
        assert (told.training, told.evaluated) == (20.0, 21.0)
    assert agent_rows((), [slot], {0: True}, {}, {})[0].training is None


def test_rows_with_very_many_tasks_do_not_fill_the_page() -> None:
    row = {"from": 0, "to": 9, "tasks": {f"t{k:05}": {"episodes": 1, "success": 1.0} for k in range(5000)}}
    row |= {f"n{k:05}": 1.0 for k in range(5000)}
    found = slot_curves([row, row])
    assert len(found.success) == MOST_TASKS
    assert len(found.other) == MOST_MEASURES


def test_the_moving_average_has_dots_of_its_own() -> None:
    beside = {"averaged": an_evaluation(200, 0.75)}
    slot = learned(0, [a_row(100)], an_evaluation(100, 0.25), an_evaluation(200, 0.5, **beside))
    for task in ("", TASKS[0]):
        panel = curves_of([slot], "", task, 0, alike=True)
        raw, averaged = [line for line in panel.lines if line.kind == "evaluation"]
        assert (raw.steps, raw.values) == ((100, 200), (0.25, 0.5))
        assert (averaged.label, averaged.steps, averaged.values) == ("slot 0, averaged", (200,), (0.75,))
        assert "the moving average" in panel.about
    with pytest.raises(ValueError, match="not a number"):
        learned(0, [a_row(100)], an_evaluation(200, 0.5, averaged=an_evaluation(200, float("nan"))))


def test_of_a_long_training_few_rows_are_kept_and_the_curve_stays_what_it_was() -> None:
    rows = [a_row(100 * k, 0.5 + 0.5 * math.sin(k / 900), loss=float(k)) for k in range(1, 20_001)]
    kept = slot_curves(rows)
    assert len(kept.steps) == len(kept.other["loss"]) == len(kept.times) <= MOST_ROWS
    assert len(kept.success[TASKS[0]].sums) == len(kept.steps) + 1
    assert kept.success[TASKS[0]].episodes[-1] == 200_000
    line = line_of(kept, 0, "", "success", "")
    assert line.steps[-1] == 2_000_000
    for step, value in zip(line.steps, line.values, strict=True):
        assert value == pytest.approx(0.5 + 0.5 * math.sin(step / 90_000), abs=0.02)


def test_a_task_that_comes_late_and_one_that_goes_are_pooled_over_their_own_rows() -> None:
    early, late = ({task: {"episodes": 2, "success": 1.0, "return": 5.0}} for task in TASKS)
    rows = [
        {"to": 100, "tasks": early},
        {"to": 200, "tasks": early | late, "loss": 0.5},
        {"to": 300, "tasks": late, "loss": None},
    ]
    found = slot_curves(rows)
    assert found.success[TASKS[0]].episodes == (0.0, 2.0, 4.0, 4.0)
    assert found.success[TASKS[1]].sums == (0.0, 0.0, 2.0, 4.0)
    assert found.other == {"loss": (None, 0.5, None)}
    assert (found.steps, found.times) == ((100, 200, 300), (None, None, None))


def test_of_very_many_evaluations_few_are_kept_the_best_among_them_and_all_are_counted() -> None:
    judged = [an_evaluation(100 * k, 0.9 if k == 2345 else 0.5) for k in range(5000)]
    slot = learned(0, [a_row(100)], *judged)
    steps = [row["step"] for row in slot.evaluations]
    assert (len(steps), steps[0], steps[-1]) == (MOST_ROWS, 0, 499_900)
    assert steps == sorted(steps)
    row = evaluation_rows([slot])[0]
    assert (row.best, row.best_step, row.count) == (0.9, 234_500, 5000)
