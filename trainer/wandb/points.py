"""A slot's rows as lines of a W&B history, the same whether they are sent live or afterwards. Pure.

W&B drops a line whose `_step` is not above the one before it, and an evaluation is ready long after rows of later
steps were sent. So every row and every evaluation is a line of its own, `_step` only counts them upward, and the axis
of all curves is `global_step`: the environment step that the values are of. Because both ways write the same number of
lines, a history that was sent live is whole again after `wandb sync`, whatever was missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain
from typing import Any, NamedTuple

from trainer.history.tensorboard import evaluation_scalars, scalars

#: The axis of all curves.
STEP = "global_step"
#: Beside it, the step of the newest row and of the newest evaluation: their last values tell what a run on W&B has.
ROW_STEP, EVALUATION_STEP = "train/step", "evaluation/step"

Values = dict[str, float]
Rows = Iterable[Mapping[str, Any]]


class Cursor(NamedTuple):
    """How far a history is: the step of its newest row, and of its newest evaluation; -1 before the first."""

    row: int = -1
    evaluation: int = -1

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Cursor:
        """That of a run on W&B, from its summary (the last value of each name). Errors: TypeError, ValueError."""
        return cls(*(-1 if summary.get(name) is None else int(summary[name]) for name in (ROW_STEP, EVALUATION_STEP)))

    def has(self, point: Point) -> bool:
        """Whether `point` is in a history that is so far."""
        return point.step <= (self.evaluation if point.is_evaluation else self.row)

    def after(self, point: Point) -> Cursor:
        """Once `point` is in the history, too."""
        return self._replace(evaluation=point.step) if point.is_evaluation else self._replace(row=point.step)


#: A history with nothing in it.
START = Cursor()


class Point(NamedTuple):
    """One line: `values` of environment step `step`. W&B's own name for the time (unix seconds) is `_timestamp`."""

    step: int
    values: Values

    @property
    def is_evaluation(self) -> bool:
        """Or else it is a row of metrics."""
        return EVALUATION_STEP in self.values


def points(rows: Rows, evaluations: Rows, after: Cursor = START) -> list[Point]:
    """What a history that is as far as `after` lacks, by steps; at one step the row comes first.

    Errors: KeyError, TypeError, AttributeError for rows that are no training's.
    """
    return sorted(chain(_of_rows(rows, after), _of_evaluations(evaluations, after)), key=_place)


def merged(rows: Rows, evaluations: Rows, after: Cursor) -> Iterator[Point]:
    """The same of rows and evaluations that are in order already, one at a time, so that they need not fit into
    memory.
    """
    return merge(_of_rows(rows, after), _of_evaluations(evaluations, after), key=_place)


def _place(point: Point) -> tuple[int, bool]:
    return point.step, point.is_evaluation


def _of_rows(rows: Rows, after: Cursor) -> Iterator[Point]:
    for row in rows:
        if row["to"] > after.row:
            yield Point(row["to"], {STEP: row["to"], ROW_STEP: row["to"], **scalars(row), "_timestamp": row["at"]})


def _of_evaluations(rows: Rows, after: Cursor) -> Iterator[Point]:
    for row in rows:
        if (step := row["step"]) > after.evaluation:
            yield Point(step, {STEP: step, EVALUATION_STEP: step, **evaluation_scalars(row), "_timestamp": row["at"]})


def numbered(lines: Iterable[Point], first: int = 0) -> Iterator[tuple[int, Values]]:
    """Each with its `_step`: its environment step where that is free, else the next number. None is below `first`."""
    for point in lines:
        at = max(point.step, first)
        yield at, point.values
        first = at + 1


def define_axes(run: Any) -> None:
    """Tell a run of W&B, once, that all its curves have `STEP` as their axis, and that the steps are no curves."""
    for name in (STEP, ROW_STEP, EVALUATION_STEP):
        run.define_metric(name, hidden=True)
    run.define_metric("*", step_metric=STEP)
