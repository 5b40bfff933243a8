"""The rows of a slot as its newest attempt goes on writing them: all that there are once, then what is appended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anchorleg.job import Job
from trainer.history.journal import EVALUATIONS, METRICS
from trainer.history.read import read, read_evaluations
from trainer.wandb.points import Cursor, Point, points


class Tail:
    """The complete lines of a file that another process appends to. What is no JSON is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """Those since the last call. Errors: OSError, but none for a file that is not there yet."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


class Journals:
    """What a job has to tell W&B. Its elders' rows are read once; its own files are followed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tails: tuple[Tail, Tail] | None = None
        self._queued = Cursor()
        self._waiting: list[Point] = []

    def news(self, after: Cursor) -> list[Point]:
        """All that is written and that a history which is as far as `after` lacks.

        Errors: OSError; ValueError where a parent.json is damaged; what `points` raises.
        """
        if self._tails is None:
            if not (self._job.attempt_dir / "parent.json").exists():
                return []  # which of its elders' rows count is not decided yet
            self._queue(points(read(self._job.slot_dir), read_evaluations(self._job.slot_dir)))
            self._tails = Tail(self._job.attempt_dir / METRICS), Tail(self._job.attempt_dir / EVALUATIONS)
        rows, evaluations = self._tails
        self._queue(points(rows.rows(), evaluations.rows(), self._queued))
        self._waiting = [point for point in self._waiting if not after.has(point)]
        return self._waiting

    def _queue(self, lines: list[Point]) -> None:
        self._waiting += lines
        for point in lines:
            self._queued = self._queued.after(point)
