"""Good segments between the judge's thread and the training: their rows wait here until the loop has a moment."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ready:
    """A good segment, moved to `accepted/`, whose rows are at hand."""

    who: str
    sha256: str
    task: int
    rows: dict[str, Any]
    content: str
    policy_step: int

    @property
    def count(self) -> int:
        """Its rows."""
        return int(self.rows["reward"].shape[0])


class AtHand:
    """The waiting segments, each contributor's in order, the contributors in turns. For any thread."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Ready]] = {}
        self._rows = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """Rows of all that waits."""
        return self._rows

    def add(self, one: Ready) -> None:
        """`one` is good: it comes after the others of its sender."""
        with self._lock:
            self._lines.setdefault(one.who, deque()).append(one)
            self._rows += one.count

    def take(self, max_rows: int) -> list[Ready]:
        """Segments with at most `max_rows` rows (but at least one segment), the contributors taking turns."""
        taken: list[Ready] = []
        rows = 0
        with self._lock:
            while self._lines:
                who = next(iter(self._lines))
                line = self._lines.pop(who)
                if taken and rows + line[0].count > max_rows:
                    self._lines = {who: line, **self._lines}
                    break
                taken.append(line.popleft())
                rows += taken[-1].count
                if line:
                    self._lines[who] = line  # to the end of the row of contributors
            self._rows -= rows
        return taken

    def put_back(self, taken: Sequence[Ready]) -> None:
        """These could not be used now; they come first the next time."""
        with self._lock:
            for one in reversed(taken):
                self._lines.setdefault(one.who, deque()).appendleft(one)
                self._rows += one.count

    def remove(self, who: str) -> list[Ready]:
        """All of `who` that waits; it waits no more."""
        with self._lock:
            lost = self._lines.pop(who, deque())
            self._rows -= sum(one.count for one in lost)
        return list(lost)
