"""What the nets are like inside, in the first row past each multiple of so many updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainer.algorithms.common.diagnostics import INTERVAL_UPDATES
from trainer.training.features.base import Feature, RunningAttempt
from trainer.training.run import TrainingRun, crossed


class Diagnostics(Feature):
    """Adds them to the row; draws from no stream of the run."""

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        add_diagnostics(run.state, row)


def add_diagnostics(state: TrainingRun, row: dict[str, Any]) -> None:
    """Where they are due, `diagnostics` of the nets, and of each task, and of each contributor in `row`, more."""
    if not crossed(state.updates - row["updates"], state.updates, INTERVAL_UPDATES):
        return
    if (found := state.algorithm.diagnose(state.step)) is None:
        return
    row["diagnostics"] = _readable(found.nets)
    for of_task, measured in zip(row["tasks"].values(), found.tasks, strict=True):
        of_task.update(_readable(measured))
    if "contributed" in row:
        row["contributed"]["td_error"] = _readable(state.algorithm.diagnose_contributors(state.step))


def _readable(values: Mapping[str, float]) -> dict[str, float]:
    """Six digits of each, which say all that a probe can; without those that are not finite, which JSON has no word
    for (whether a training goes on is for its losses and parameters to say).
    """
    return {name: float(f"{value:.6g}") for name, value in values.items() if math.isfinite(value)}
