"""How far a training is: `progress.json` for the orchestrator, and lines for people."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from anchorleg.output import Waiting
from anchorleg.words import duration
from trainer.machine.device import GpuMeter
from trainer.training.features.base import TRAINING, EndReason, Feature, RunningAttempt

#: Lines this far apart tell enough and keep a job's log small (1,440 lines in four hours).
LINE_EVERY_S = 10.0
#: `progress.json` (two fsyncs) is renewed this often: the orchestrator looks every 1-30 s.
REPORT_S = 3.0
#: Rates are taken over this long: shorter jumps with every checkpoint, longer hides a stall.
RATE_WINDOW_S = 30.0
#: What a line says of the numbers of a report, where they are there.
_SHOWN = {
    "steps_per_s": "{:,.0f} steps/s",
    "updates_per_s": "{:,.1f} updates/s",
    "left_s": "{} left",
    "gpu_percent": "GPU {:.0f} %",
    "success": "success {:.0%}",
    "return": "return {:,.1f}",
    "contributed_rows": "{:,} rows from others",
    "refused": "{:,} segments refused",
}


def line_of(report: Mapping[str, Any]) -> str:
    """What a `report` says, on one line: the rest of it at the present rate, the return where no success is told."""
    told = {name: value for name, value in report.items() if value or name in {"success", "return", "gpu_percent"}}
    if rate := told.get("steps_per_s"):
        told["left_s"] = duration(max(0, report["total"] - report["step"]) / rate)
    if "success" in told:
        told.pop("return", None)
    parts = [f"step {report['step']:,} of {report['total']:,}", f"saved at {report['checkpoint_step']:,}"]
    parts += [form.format(told[name]) for name, form in _SHOWN.items() if told.get(name) is not None]
    return " · ".join([*parts, *([report["doing"]] if report["doing"] != TRAINING else [])])


class TrainingDisplay:
    """Lines, such as for a job's log; on a terminal, `line` shows the progress. `is_silent`: of later ranks."""

    def __init__(self, line: Waiting | None = None, *, is_silent: bool = False) -> None:
        self._is_silent = is_silent
        self._line = line if line is not None and line.is_shown else None
        self._last_line_at = float("-inf")

    def say(self, sentence: str) -> None:
        """One line. Where nobody can have it (`| head`, a full disk) the training goes on without."""
        if not self._is_silent:
            Waiting.clear()
            with contextlib.suppress(OSError):
                print(sentence, flush=True)

    def progress(self, report: Mapping[str, Any]) -> None:
        """Where the training stands, as in `progress.json`; as often as one likes."""
        if self._line is not None:
            self._line.words = line_of(report)
        elif time.monotonic() - self._last_line_at >= LINE_EVERY_S:
            self._last_line_at = time.monotonic()
            self.say(line_of(report))


class ProgressReports(Feature):
    """Every few seconds, also while the training stands still: who reports nothing is taken for stalled."""

    def __init__(self, show: TrainingDisplay) -> None:
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
        facts = {name: value for feature in run.features for name, value in feature.facts(run).items()}
        measured = {"gpu_percent": self._gpu.percent, "save_s": run.saver.save_s, **self._rates(run, at), **facts}
        report = {
            "step": run.state.step,
            "total": run.training.total_steps,
            "checkpoint_step": run.saver.published_step or 0,
            "doing": run.doing,
            **{name: value for name, value in measured.items() if value is not None},
        }
        with contextlib.suppress(OSError):  # a full disk is told by the checkpoints
            run.job.report(**report)
        for feature in run.features:
            feature.tell(run.say)
        self._show.progress(report)

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
