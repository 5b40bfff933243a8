"""Rows of metrics and evaluations, appended to files of JSON lines.

A row of metrics sums up the steps (`from`, `to`]. Rows end at fixed places (the first vector step at or past each
multiple of `metrics_interval`, and the end of the training), whatever is saved or handed over meanwhile: the running
sums are part of the checkpoint. So an attempt's rows whose `to` lies past its successor's parent step are the
successor's to write again, with the same numbers; `trainer.history.read` leaves them out. Only `at` (unix seconds)
depends on the clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorleg.files import append_lines, as_line

METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"

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
