"""How far a training is: `progress.json` for the orchestrator, a live bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from anchorleg.words import duration
from trainer.machine.device import GpuMeter
from trainer.training.features.base import TRAINING, EndReason, Feature, RunningAttempt

#: Plain lines this far apart tell enough and keep a job's log small (1,440 lines in four hours).
PLAIN_EVERY_S = 10.0
#: `progress.json` (two fsyncs) and the display are renewed this often: the orchestrator looks every 1-30 s.
REPORT_S = 3.0
#: Rates are taken over this long: shorter jumps with every checkpoint, longer hides a stall.
RATE_WINDOW_S = 30.0
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
    doing: str = TRAINING
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
        if self.doing != TRAINING:
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


class ProgressReports(Feature):
    """Every few seconds, also while the training stands still: who reports nothing is taken for stalled."""

    def __init__(self, show: Reporter) -> None:
        self._show = show
        self._marks: deque[tuple[float, int, int]] = deque()
        self._reported_at = float("-inf")

    def begin(self, run: RunningAttempt) -> None:
        self._gpu = GpuMeter(run.state.algorithm.device)

    def look(self, run: RunningAttempt) -> None:
        if time.monotonic() - self._reported_at >= REPORT_S:
            self._report(run)

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        self._gpu.close()
        if reason is not EndReason.FAILED:
            self._report(run)

    def _report(self, run: RunningAttempt) -> None:
        at = self._reported_at = time.monotonic()
        rates = {**self._rates(run, at), "gpu_percent": self._gpu.percent}
        facts = {name: value for feature in run.features for name, value in feature.facts(run).items()}
        told = {"save_s": run.saver.save_s, "doing": run.doing, **rates, **facts}
        saved = run.saver.published_step or 0
        with contextlib.suppress(OSError):  # a full disk is told by the checkpoints
            run.job.report(
                step=run.state.step,
                total=run.training.total_steps,
                checkpoint_step=saved,
                **{name: value for name, value in told.items() if value is not None},
            )
        for feature in run.features:
            feature.tell(run.say)
        shown = ("success", "contributed_rows", "accepted", "refused")
        self._show.progress(
            TrainingProgress(
                step=run.state.step,
                total=run.training.total_steps,
                checkpoint_step=saved,
                doing=run.doing,
                mean_return=None if "success" in facts else facts.get("return"),
                **rates,
                **{name: facts[name] for name in shown if name in facts},
            )
        )

    def _rates(self, run: RunningAttempt, at: float) -> dict[str, Any]:
        self._marks.append((at, run.state.step, run.state.updates))
        while len(self._marks) > 2 and at - self._marks[1][0] >= RATE_WINDOW_S:
            self._marks.popleft()
        then, step, updates = self._marks[0]
        if at <= then:
            return {}
        seconds = at - then
        return {
            "steps_per_s": round((run.state.step - step) / seconds, 2),
            "updates_per_s": round((run.state.updates - updates) / seconds, 2),
        }


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
