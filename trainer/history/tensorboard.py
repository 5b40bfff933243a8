"""Rows of metrics and evaluations as TensorBoard's scalars, and its files of events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trainer.history.read import mean_return, tells_success

#: Numbers of a row that are no curves: where it lies, and when it was written.
_NO_CURVES = frozenset({"from", "to", "at"})

#: The class of its thread (tensorboard/summary/writer/event_file_writer.py).
_ITS_THREAD = "_AsyncWriterThread"
_log = logging.getLogger(__name__)


class TensorBoardEvents:
    """TensorBoard's events of a slot, in `<slot_dir>/tb`: one run for it, with an event file of each attempt.

    What an attempt wrote past `after`, its successor's parent step, is the successor's to write again; its file tells
    TensorBoard to forget the first copy. It is a convenience: trouble ends it, no more.
    """

    def __init__(self, folder: Path, after: int) -> None:
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - a second that only this needs

            _tell_no_traceback()
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


@cache
def _tell_no_traceback() -> None:
    """Of its thread that writes: what went wrong there, such as a full disk, is raised by the next `add`, too."""
    told = threading.excepthook

    def tell(args: threading.ExceptHookArgs) -> None:
        if not (isinstance(args.exc_value, OSError) and type(args.thread).__name__ == _ITS_THREAD):
            told(args)

    threading.excepthook = tell


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
    for name in ("td_error", "weight"):
        by_contributor = row.get("contributed", {}).get(name, {})
        values |= {f"contributed/{name}/{who}": value for who, value in by_contributor.items()}
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
