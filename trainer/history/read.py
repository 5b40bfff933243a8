"""A slot's rows of metrics and its evaluations: written as JSON lines, read such that every step is counted once across
all attempts, and as named numbers for TensorBoard and W&B.

A row of metrics sums up the steps (`from`, `to`]. Rows end at fixed places (the first vector step at or past each
multiple of `metrics_interval`, and the end of the training), whatever is saved or handed over meanwhile: the running
sums are part of the checkpoint. So an attempt's rows whose `to` lies past its successor's parent step are the
successor's to write again, with the same numbers, and are left out here. Only `at` (unix seconds) depends on the clock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from anchorleg.files import append_lines, as_line
from anchorleg.job import Stretch, attempt_numbers, candidates_before, lineage
from anchorleg.rollback import read_parent

METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
#: What an evaluation may be judged by, as its row says; one that says nothing is judged by success.
SUCCESS: Literal["success"] = "success"
RETURN: Literal["return"] = "return"


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, without what is no row (a torn last line of a writer that died); an absent file is empty."""
    return (row for _, row in lines_after(path, 0))


def lines_after(path: Path, offset: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows after the first `offset` bytes, which are whole lines: (bytes up to the row's end, row)."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield offset, row


def read(slot_dir: Path) -> list[dict[str, Any]]:
    """The slot's rows of metrics across its attempts, oldest first, every step once."""
    return list(rows_of(slot_dir))


def rows_of(slot_dir: Path) -> Iterator[dict[str, Any]]:
    """The rows of `read`, one at a time: those of a long training on fifty tasks would fill 3 GB."""
    return GrowingRows(slot_dir).rows(anew=True)


class GrowingRows:
    """The rows of `read` for a repeated reader: while the history only grows, each row is read once."""

    def __init__(self, slot_dir: Path) -> None:
        self._slot_dir = slot_dir
        self._line: list[Stretch] = []
        #: Bytes of its elders' files; and of the newest attempt's, as far as its rows were given out.
        self._elders: list[int] = []
        self._offset = 0

    def goes_on(self) -> bool:
        """Whether the history still begins with all that was given out. Errors: OSError, ValueError, as `lineage`."""
        line = lineage(self._slot_dir)
        return (
            line == self._line
            and [self._size(stretch) for stretch in line[:-1]] == self._elders
            and all(self._size(stretch) >= self._offset for stretch in line[-1:])
        )

    def rows(self, *, anew: bool) -> Iterator[dict[str, Any]]:
        """Those that came since the last call, whose rows were taken to their end; or all, `anew`. Errors: OSError,
        ValueError, as `lineage`; KeyError, TypeError for a row that is no training's.
        """
        if anew:
            self._line, self._offset = lineage(self._slot_dir), 0
            self._elders = [self._size(stretch) for stretch in self._line[:-1]]
            for stretch in self._line[:-1]:
                for _, row in self._counted(stretch, 0):
                    yield row
        for stretch in self._line[-1:]:
            for end, row in self._counted(stretch, self._offset):
                self._offset = end
                yield row

    def _counted(self, stretch: Stretch, offset: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for end, row in lines_after(self._path(stretch), offset):
            if row["to"] > stretch.after and (stretch.until is None or row["to"] <= stretch.until):
                yield end, row

    def _size(self, stretch: Stretch) -> int:
        try:
            return self._path(stretch).stat().st_size
        except FileNotFoundError:
            return 0

    def _path(self, stretch: Stretch) -> Path:
        return self._slot_dir / "attempts" / str(stretch.attempt) / METRICS


def read_evaluations(slot_dir: Path) -> list[dict[str, Any]]:
    """The slot's evaluations across its attempts, one a step, oldest first.

    An attempt also makes those of its elders' checkpoints that they had no time for. They count even where the attempt
    itself does not, because it ended before its first checkpoint: the checkpoint that was evaluated is the line's.
    """
    found: dict[int, dict[str, Any]] = {}
    for attempt, until in evaluators(slot_dir):
        for row in lines(slot_dir / "attempts" / str(attempt) / EVALUATIONS):
            if until is None or row["step"] <= until:
                found.setdefault(row["step"], row)
    return [found[step] for step in sorted(found)]


def evaluators(slot_dir: Path) -> list[tuple[int, int | None]]:
    """The attempts whose evaluations count, those of the line first: (attempt, the last step that counts of it; None:
    all do).
    """
    line = lineage(slot_dir)
    return [*((stretch.attempt, stretch.until) for stretch in line), *_beside(slot_dir, line)]


def _beside(slot_dir: Path, line: Sequence[Stretch]) -> Iterator[tuple[int, int]]:
    """Attempts outside the `line` that began on it: (attempt, the last step that it has in common with the line).
    Errors: OSError, ValueError, as `lineage`.
    """
    untils = {stretch.attempt: stretch.until for stretch in line}
    for attempt in attempt_numbers(slot_dir):
        if attempt in untils:
            continue
        parent = read_parent(slot_dir, attempt)
        if parent is not None and parent.attempt in untils:
            until = untils[parent.attempt]
            yield attempt, parent.step if until is None else min(parent.step, until)


def best_evaluation(evaluations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The one with the highest score, the newest among equals; None before the first."""
    return max(evaluations, key=lambda row: (score_of(row), row["step"]), default=None)


def best_left(slot_dir: Path, evaluations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The best of the slot's `evaluations` whose checkpoint no decision to go back passes over; None: there is none.
    Errors: OSError, ValueError for a damaged decision.
    """
    following = max(attempt_numbers(slot_dir), default=0) + 1
    whole, left = (
        {ref.step for ref in candidates_before(slot_dir, following, backs_until=until)} for until in (-1, following)
    )
    return best_evaluation([row for row in evaluations if row["step"] not in whole - left])


def score_of(row: Mapping[str, Any]) -> float:
    """What an evaluation is judged by: its mean success, or its mean return where no success was told."""
    return float(row["mean_success"]) if tells_success(row) else mean_return(row)


def tells_success(row: Mapping[str, Any]) -> bool:
    """Whether an evaluation is judged by success."""
    return bool(row.get("score", SUCCESS) == SUCCESS)


def mean_return(row: Mapping[str, Any]) -> float:
    """Of an evaluation, over its tasks."""
    returns = row["returns"].values()
    return float(sum(returns) / len(returns))


def of_average(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What an evaluation says of the moving average, as a row of its own; None where that was not played."""
    return {"step": row["step"], **row["averaged"]} if "averaged" in row else None


def success_of(row: Mapping[str, Any] | None) -> float | None:
    """The mean success; None where there is no evaluation, or it tells of none."""
    return float(row["mean_success"]) if row is not None and tells_success(row) else None


_log = logging.getLogger(__name__)


class Journal:
    """Appends rows to one file of JSON lines. What does not reach the disk waits in memory and is tried again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[bytes] = []

    def add(self, row: Mapping[str, Any]) -> None:
        """Queue `row` and try to write."""
        self._waiting.append(as_line({**row, "at": round(time.time(), 3)}))
        try:
            self.flush()
        except OSError as error:
            _log.warning("%s cannot be written now (%s); its rows stay in memory", self._path.name, error.strerror)

    def flush(self) -> None:
        """Write what waits, durably, whole lines or nothing. Errors: OSError."""
        if self._waiting:
            append_lines(self._path, *self._waiting)
            self._waiting.clear()


#: Numbers of a row that are no curves: where it lies, and when it was written.
_NO_CURVES = frozenset({"from", "to", "at"})


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """A row of metrics as TensorBoard names: `train/q`, `diagnostics/critics_rank`, `td_error/reach-v3`, …"""
    values = {
        f"train/{name}": value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in _NO_CURVES
    }
    for group in ("diagnostics", "contributed", "group"):
        numbers = {name: value for name, value in row.get(group, {}).items() if isinstance(value, int | float)}
        values |= {f"{group}/{name}": value for name, value in numbers.items()}
    values |= {f"group/rows/{slot}": value for slot, value in row.get("group", {}).get("group_rows", {}).items()}
    by_contributor = row.get("contributed", {}).get("weight", {})
    values |= {f"contributed/weight/{who}": value for who, value in by_contributor.items()}
    for task, measured in row["tasks"].items():
        values |= {f"{name}/{task}": value for name, value in measured.items() if name != "episodes"}
    return values


def evaluation_scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """An evaluation as TensorBoard names: `evaluation/success`, `evaluation/success/reach-v3`, …; of one that is judged
    by its return `evaluation/return`, …, and no success.
    """
    values = _of_success(row) if tells_success(row) else _of_return(row)
    for name, means in row.get("measures", {}).items():
        values |= {f"evaluation/{name}/{task}": value for task, value in means.items()}
    return values


def _of_success(row: Mapping[str, Any]) -> dict[str, float]:
    values = {"evaluation/success": row["mean_success"], "evaluation/iqm": row["iqm_success"]}
    for name, field in (("success", "success"), ("return", "returns"), ("steps", "steps_to_success")):
        values |= {f"evaluation/{name}/{task}": value for task, value in row[field].items()}
    for name, beside in (("averaged_success", row.get("averaged")), ("unseen", row.get("unseen"))):
        if beside is not None:
            values[f"evaluation/{name}"] = beside["mean_success"]
            values |= {f"evaluation/{name}/{task}": value for task, value in beside["success"].items()}
    return values


def _of_return(row: Mapping[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {}
    beside = (("averaged_return", row.get("averaged")), ("unseen_return", row.get("unseen")))
    for name, found in (("return", row), *beside):
        if found is not None:
            values[f"evaluation/{name}"] = mean_return(found)
            values |= {f"evaluation/{name}/{task}": value for task, value in found["returns"].items()}
    return values
