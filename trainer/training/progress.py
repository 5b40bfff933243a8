"""What a user sees: a live bar on a terminal, plain lines in a pipe, one table for evaluations."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table

from anchorleg.words import duration
from trainer.history.read import tells_success

#: Plain lines this far apart tell enough and keep a job's log small (1,440 lines in four hours).
PLAIN_EVERY_S = 10.0
#: In 80 columns the rest still fits on two lines.
_BAR = 16


@dataclass(frozen=True)
class TrainingProgress:
    """The training at one moment. Rates are of the last while, None at the start.

    `contributed_rows`: others' rows in their ring now; `accepted`, `refused`: their segments, by this attempt.
    """

    step: int
    total: int
    checkpoint_step: int
    steps_per_s: float | None = None
    updates_per_s: float | None = None
    gpu_percent: float | None = None
    success: float | None = None
    mean_return: float | None = None
    doing: str = "training"
    contributed_rows: int = 0
    accepted: int = 0
    refused: int = 0

    @property
    def left_s(self) -> float | None:
        """Seconds to the last step at the present rate."""
        return max(0, self.total - self.step) / self.steps_per_s if self.steps_per_s else None

    def words(self) -> str:
        """Everything but the step, on one line."""
        parts = [f"saved at {self.checkpoint_step:,}"]
        if self.steps_per_s is not None:
            parts.append(f"{self.steps_per_s:,.0f} steps/s")
        if self.updates_per_s is not None:
            parts.append(f"{self.updates_per_s:,.1f} updates/s")
        if self.left_s is not None:
            parts.append(f"{duration(self.left_s)} left")
        if self.gpu_percent is not None:
            parts.append(f"GPU {self.gpu_percent:.0f} %")
        if self.success is not None:
            parts.append(f"success {100 * self.success:.0f} %")
        if self.mean_return is not None:
            parts.append(f"return {self.mean_return:,.1f}")
        if self.contributed_rows or self.accepted or self.refused:
            parts.append(f"{self.contributed_rows:,} rows from others ({self.refused:,} segments refused)")
        if self.doing != "training":
            parts.append(self.doing)
        return " · ".join(parts)


class Reporter(Protocol):
    """What the training loop needs of a `TrainingDisplay`."""

    def say(self, sentence: str) -> None:
        """One line for the log."""

    def progress(self, progress: TrainingProgress) -> None:
        """Where the training stands."""


class Silent:
    """Of a rank that is not the first: that one says it."""

    def say(self, sentence: str) -> None:
        """Nothing."""

    def progress(self, progress: TrainingProgress) -> None:
        """Nothing."""


class TrainingDisplay:
    """Live on a terminal, plain in a pipe. Use it as a context."""

    def __init__(self, *, live: bool | None = None) -> None:
        self._live = sys.stdout.isatty() if live is None else live
        self._console = Console(emoji=False, highlight=False)
        self._last_line_at = float("-inf")
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._live:
            columns = (
                BarColumn(bar_width=_BAR),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                TextColumn("{task.description}", table_column=Column()),  # on several lines where it must
            )
            self._progress = Progress(*columns, console=self._console)
            self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._progress:
            self._progress.stop()
        self._progress = None

    def say(self, sentence: str) -> None:
        """One line for the log. Where nobody can have it (`| head`, a full disk) the training goes on without."""
        with contextlib.suppress(OSError):
            if self._progress:
                self._console.print(sentence, markup=False)
            else:  # rich would keep what could not be written, and write it again with each line
                print(sentence, flush=True)

    def progress(self, progress: TrainingProgress) -> None:
        """Where the training stands; as often as one likes."""
        if self._progress:
            if self._task is None:
                self._task = self._progress.add_task("", total=progress.total)
            self._progress.update(
                self._task,
                completed=min(progress.step, progress.total),
                total=progress.total,
                description=progress.words(),
            )
        elif time.monotonic() - self._last_line_at >= PLAIN_EVERY_S:
            self._last_line_at = time.monotonic()
            self.say(f"step {progress.step:,} of {progress.total:,} · {progress.words()}")


#: What an evaluation may have beside it, and what that is called.
_BESIDE = {"unseen": "unseen goals", "averaged": "averaged"}


def show_evaluation(result: Mapping[str, Any], summary: str) -> None:
    """The table of one evaluation, on standard output."""
    console = Console(emoji=False, highlight=False)
    if not tells_success(result):
        for task, earned in result["returns"].items():
            print(task, f"{earned:.1f}", sep="\t")
        print(summary)
        return
    beside = {words: result[name]["success"] for name, words in _BESIDE.items() if name in result}
    if console.is_terminal:
        table = Table("task", "success", "return", "solved in steps", *beside)
        for task, success in result["success"].items():
            steps = result["steps_to_success"].get(task)
            table.add_row(
                task,
                f"{100 * success:.0f} %",
                f"{result['returns'][task]:,.0f}",
                "" if steps is None else f"{steps:.0f}",
                *(f"{100 * found[task]:.0f} %" for found in beside.values()),
            )
        console.print(table)
    else:
        for task, success in result["success"].items():
            steps = result["steps_to_success"].get(task)
            more = [f"{found[task]:.3f}" for found in beside.values()]
            print(
                *(task, f"{success:.3f}", f"{result['returns'][task]:.1f}", "" if steps is None else f"{steps:.1f}"),
                *more,
                sep="\t",
            )
    print(summary)
