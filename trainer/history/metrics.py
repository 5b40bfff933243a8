"""Metrics as JSON lines and TensorBoard events, such that every step is counted once across all attempts.

A row sums up the steps (`from`, `to`]. Rows end at fixed places (the first vector step at or past each multiple of
`metrics_interval`, and the end of the training), whatever is saved or handed over meanwhile: the running sums are part
of the checkpoint. So an attempt's rows whose `to` lies past its successor's parent step are the successor's to write
again, with the same numbers; `read` leaves them out. Only `at` (unix seconds) depends on the clock.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorleg.files import append_lines, as_line, read_json_or_none
from anchorleg.job import Stretch, attempt_numbers, lineage

METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
#: Numbers of a row that are no curves: where it lies, and when it was written.
_NO_CURVES = frozenset({"from", "to", "at"})

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
            _log.warning("%s cannot be written now (%s); its rows wait in memory", self._path.name, error.strerror)

    def flush(self) -> None:
        """Write what waits, durably, whole lines or nothing. Errors: OSError."""
        if self._waiting:
            append_lines(self._path, *self._waiting)
            self._waiting.clear()


class TensorBoardEvents:
    """TensorBoard's events of a slot, in `<slot_dir>/tb`: one run for it, with an event file of each attempt.

    What an attempt wrote past `after`, its successor's parent step, is the successor's to write again; its file tells
    TensorBoard to forget the first copy. It is a convenience: trouble ends it, no more.
    """

    def __init__(self, folder: Path, after: int) -> None:
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - a second that only this needs

            self._writer = SummaryWriter(str(folder), purge_step=after + 1)
        except Exception as error:  # noqa: BLE001 - with other versions of protobuf or numpy it raises whatever it likes
            _log.warning("no TensorBoard events: %s", error)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write scalars at `step`."""
        try:
            for name, value in values.items() if self._writer else ():
                self._writer.add_scalar(name, value, step)
        except OSError as error:
            _log.warning("no more TensorBoard events: %s", error)
            self._writer = None

    def close(self) -> None:
        """Write out what waits."""
        try:
            if self._writer:
                self._writer.close()
        except OSError as error:
            _log.warning("the last TensorBoard events are lost: %s", error)
        self._writer = None


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """A row of metrics as TensorBoard names: `train/q`, `diagnostics/critics_rank`, `td_error/reach-v3`, …"""
    values = {
        f"train/{name}": value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in _NO_CURVES
    }
    for group in ("diagnostics", "contributed"):
        values |= {f"{group}/{name}": value for name, value in row.get(group, {}).items() if name != "td_error"}
    values |= {f"contributed/td_error/{who}": value for who, value in _td_errors(row).items()}
    for task, measured in row["tasks"].items():
        values |= {f"{name}/{task}": value for name, value in measured.items() if name != "episodes"}
    return values


def _td_errors(row: Mapping[str, Any]) -> dict[str, float]:
    """Contributor → TD error, where the row has it."""
    errors: dict[str, float] = row.get("contributed", {}).get("td_error", {})
    return errors


def evaluation_scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """An evaluation as TensorBoard names: `evaluation/success`, `evaluation/success/reach-v3`, …"""
    values = {"evaluation/success": row["mean_success"], "evaluation/iqm": row["iqm_success"]}
    for name, field in (("success", "success"), ("return", "returns"), ("steps", "steps_to_success")):
        values |= {f"evaluation/{name}/{task}": value for task, value in row[field].items()}
    if (unseen := row.get("unseen")) is not None:
        values |= {"evaluation/unseen": unseen["mean_success"]}
        values |= {f"evaluation/unseen/{task}": value for task, value in unseen["success"].items()}
    return values


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file; a torn last line (its writer died) is left out, an absent file is empty."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n")[:-1]:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def read(slot_dir: Path) -> list[dict[str, Any]]:
    """The slot's rows of metrics across its attempts, oldest first, every step once."""
    return [
        row
        for stretch in lineage(slot_dir)
        for row in lines(slot_dir / "attempts" / str(stretch.attempt) / METRICS)
        if row["to"] > stretch.after and (stretch.until is None or row["to"] <= stretch.until)
    ]


def read_evaluations(slot_dir: Path) -> list[dict[str, Any]]:
    """The slot's evaluations across its attempts, one a step, oldest first.

    An attempt also makes those of its elders' checkpoints that they had no time for. They count even where the attempt
    itself does not, because it ended before its first checkpoint: the checkpoint that was evaluated is the line's.
    """
    found: dict[int, dict[str, Any]] = {}
    line = lineage(slot_dir)
    for attempt, until in [*((stretch.attempt, stretch.until) for stretch in line), *_beside(slot_dir, line)]:
        for row in lines(slot_dir / "attempts" / str(attempt) / EVALUATIONS):
            if until is None or row["step"] <= until:
                found.setdefault(row["step"], row)
    return [found[step] for step in sorted(found)]


def _beside(slot_dir: Path, line: Sequence[Stretch]) -> Iterator[tuple[int, int]]:
    """Attempts outside the `line` that began on it: (attempt, the last step that it has in common with the line)."""
    untils = {stretch.attempt: stretch.until for stretch in line}
    for attempt in attempt_numbers(slot_dir):
        if attempt in untils:
            continue
        parent: dict[str, Any] = read_json_or_none(slot_dir / "attempts" / str(attempt) / "parent.json") or {}
        if (elder := parent.get("attempt")) in untils:
            until = untils[elder]
            yield attempt, parent["step"] if until is None else min(parent["step"], until)


def best_evaluation(evaluations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The one with the highest mean success, the newest among equals; None before the first."""
    return max(evaluations, key=lambda row: (row["mean_success"], row["step"]), default=None)
