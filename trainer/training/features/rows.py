"""Rows of metrics: what the nets are like inside, the journal that all curves are made from, TensorBoard's events."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorleg.job import Job
from trainer.algorithms.common.diagnostics import INTERVAL_UPDATES
from trainer.history.read import METRICS, Journal, evaluation_scalars, scalars
from trainer.training.features.base import EndReason, Feature, RunningAttempt, silence
from trainer.training.run import TrainingRun, crossed

#: The class of TensorBoard's thread (tensorboard/summary/writer/event_file_writer.py).
_ITS_THREAD = "_AsyncWriterThread"
_log = logging.getLogger(__name__)


class Diagnostics(Feature):
    """Adds what the nets are like inside to the first row past a multiple of so many updates; draws from no stream."""

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        add_diagnostics(run.state, row)


def add_diagnostics(state: TrainingRun, row: dict[str, Any], interval: int | None = None) -> None:
    """Where they are due, `diagnostics` of the nets, and of each task more."""
    if not crossed(state.updates - row["updates"], state.updates, INTERVAL_UPDATES if interval is None else interval):
        return
    if (found := state.algorithm.diagnose(state.step)) is None:
        return
    row["diagnostics"] = _readable(found.nets)
    for of_task, measured in zip(row["tasks"].values(), found.tasks, strict=True):
        of_task.update(_readable(measured))


def _readable(values: Mapping[str, float]) -> dict[str, float]:
    """Six digits of each, which say all that a probe can; without those that are not finite, which JSON has no word
    for (whether a training goes on is for its losses and parameters to say).
    """
    return {name: float(f"{value:.6g}") for name, value in values.items() if math.isfinite(value)}


class MetricsJournal(Feature):
    """`metrics.jsonl` of the attempt. Evaluations have a journal of their own (`features/evaluation.py`)."""

    def __init__(self, job: Job) -> None:
        self._journal = Journal(job.attempt_dir / METRICS)

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        self._journal.add(row)

    def before_save(self, run: RunningAttempt) -> None:
        self._journal.flush()


class TensorBoardEvents(Feature):
    """TensorBoard's events of a slot, in `<slot_dir>/tb`: one run for it, with an event file of each attempt.

    What an attempt wrote past `after`, its successor's parent step, is the successor's to write again; its file tells
    TensorBoard to forget the first copy. It is a convenience: trouble ends it, no more.
    """

    def __init__(self, folder: Path, after: int) -> None:
        self._folder, self._after = folder, after
        self._writer: Any = None

    def begin(self, run: RunningAttempt) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter

            silence(_ITS_THREAD)  # what goes wrong there, such as a full disk, is raised by the next `add_scalar`, too
            self._writer = SummaryWriter(str(self._folder), purge_step=self._after + 1)
        except Exception as error:  # noqa: BLE001 - with other versions of protobuf or numpy it raises whatever it likes
            _log.warning("no TensorBoard events: %s", error)

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        self._add(row["to"], scalars(row))

    def on_evaluation(self, run: RunningAttempt, row: Mapping[str, Any]) -> None:
        self._add(row["step"], evaluation_scalars(row))

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        try:
            if self._writer:
                self._writer.close()
        except OSError as error:
            _log.warning("the last TensorBoard events are lost: %s", error)
        self._writer = None

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        try:
            for name, value in values.items() if self._writer else ():
                self._writer.add_scalar(name, value, step)
        except OSError as error:
            _log.warning("no more TensorBoard events: %s", error)
            self._writer = None
