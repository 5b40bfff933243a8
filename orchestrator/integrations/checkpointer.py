"""When a loop saves, and when it leaves: for the callbacks of this folder, and for any loop (docs/programs.md)."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anchorleg.job import HANDED_OVER, CheckpointRef, Job

#: How often `progress.json` is written, at most.
REPORT_EVERY_S = 2.0
#: What a report says of itself.
RESERVED = frozenset({"step", "total", "checkpoint_step", "at"})


class Checkpointer:
    """One job of a loop over steps (of whatever kind, counted from 0 over all jobs).

    `total`: the steps of the whole run. `every`: also save after so many steps, for jobs that are killed. `start`: the
    checkpoint to go on from, None: from scratch. `start_step`: its step, else 0.
    """

    def __init__(self, job: Job, *, total: int, every: int | None = None) -> None:
        self.job = job
        self.total = total
        self.every = every
        self.start: CheckpointRef | None = job.choose_parent()
        self.start_step = self.saved = self.start.step if self.start is not None else 0
        self._reported_at = float("-inf")
        self._told: dict[str, float | str] = {}

    def tell(self, values: Mapping[str, Any]) -> None:
        """What every report says from now on beside the steps, such as the metric of `queue.metric`.

        A number that is not finite stands there as a word (`nan`); what is no number is left out. Errors: ValueError
        for a name of the report's own (`RESERVED`).
        """
        for name, value in values.items():
            if name in RESERVED:
                raise ValueError(f'"{name}" is reserved in reports: use another name')
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a tensor of several values is no number
                number = float(value)
                self._told[name] = number if math.isfinite(number) else str(number)  # JSON has no such numbers

    def step_done(self, step: int, write: Callable[[Path], object]) -> None:
        """To be called between two steps, where `write(folder)` saves all that the next one needs.

        Saves where it is due. Leaves with exit code 75 (SystemExit) after a save when the job is asked to hand over;
        never before its first step, so that even the shortest jobs get on, nor after the last one (see `finish`).
        Errors: OSError, those of `write`.
        """
        leaves = self._leaves(step)  # asked once: what comes after the save is for the next step
        if leaves or self._is_time(step):
            self.save(step, write)
        self.report(step, at_once=leaves)
        if leaves:
            sys.exit(HANDED_OVER)

    def is_due(self, step: int) -> bool:
        """Whether `step_done` would save: for frameworks that save in a way of their own."""
        return self._leaves(step) or self._is_time(step)

    def save(self, step: int, write: Callable[[Path], object]) -> None:
        """Save, whatever is due. Errors: as `step_done`."""
        if step > self.start_step:
            self.job.save_checkpoint(step, write)
        self.saved = step

    def finish(self, step: int, write: Callable[[Path], object]) -> None:
        """Save the end of the run, and report it; then the program exits with 0. Errors: as `step_done`.

        `step` becomes the total: a training may stop early, or go on to a round number.
        """
        self.save(step, write)
        self.total = step
        self.report(step, at_once=True)

    def report(self, step: int, *, at_once: bool = False) -> None:
        """Say how far it is, every two seconds at most unless `at_once`. Errors: OSError."""
        if at_once or time.monotonic() - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = time.monotonic()
            self.job.report(step=step, total=self.total, checkpoint_step=self.saved, **self._told)

    def _is_time(self, step: int) -> bool:
        return self.every is not None and step - self.saved >= self.every

    def _leaves(self, step: int) -> bool:
        return self.start_step < step < self.total and self.job.hand_over_reason() is not None
