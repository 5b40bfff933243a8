"""The rows of a slot as its newest attempt goes on writing them: all that there are once, then what is appended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from anchorleg.job import Job
from trainer.history.journal import EVALUATIONS, METRICS
from trainer.history.read import lines_after, read_evaluations, rows_of
from trainer.wandb.points import Cursor, Point, merged, points

#: At a time: what a training of days wrote, on fifty tasks, would fill gigabytes.
MOST_LINES = 1000


class Tail:
    """The complete lines of a file that another process appends to. What is no JSON is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """Those since the last call. Errors: OSError, but none for a file that is not there yet."""
        for end, row in lines_after(self._path, self._offset):
            self._offset = end
            yield row


class Journals:
    """What a job has to tell W&B. Its elders' rows are read once; its own files are followed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tails: tuple[Tail, Tail] | None = None
        self._backlog: Iterator[Point] = iter(())
        self._queued = Cursor()
        self._waiting: list[Point] = []

    def news(self, after: Cursor) -> list[Point]:
        """What is written and a history that is as far as `after` lacks: the first `MOST_LINES`, or a few more.

        Errors: OSError; ValueError where a parent.json is damaged; what `points` raises.
        """
        if self._tails is None:
            if not (self._job.attempt_dir / "parent.json").exists():
                return []  # which of its elders' rows count is not decided yet
            slot = self._job.slot_dir
            self._backlog, self._queued = merged(rows_of(slot), read_evaluations(slot), after), after
            self._tails = Tail(self._job.attempt_dir / METRICS), Tail(self._job.attempt_dir / EVALUATIONS)
        self._waiting = [point for point in self._waiting if not after.has(point)]
        self._queue(islice(self._backlog, max(0, MOST_LINES - len(self._waiting))))
        if len(self._waiting) < MOST_LINES:  # the backlog is at its end
            rows, evaluations = self._tails
            self._queue(points(rows.rows(), evaluations.rows(), self._queued))
        return self._waiting

    def _queue(self, lines: Iterable[Point]) -> None:
        for point in lines:
            self._waiting.append(point)
            self._queued = self._queued.after(point)
