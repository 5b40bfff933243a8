"""What a segment that was taken before is known by: its content, and its start and actions.

All else follows from these, but only as far as honest machines agree (`trainer.sharing.spotcheck.TOLERANCE`): by its
observations one true episode would be as many as somebody likes. So segments are near where their starts differ by no
more than two of the same could, and at least half of the newer one's actions by less than two draws of a policy do.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from anchorleg.job import Job, attempt_numbers
from trainer.buffers.contributed import MAX_RECENT
from trainer.envs.spaces import F32
from trainer.sharing.segment import Segment

I8 = npt.NDArray[np.int8]
#: Starts are the same within this, in every number: twice the simulation's tolerance.
SAME_START = 2e-2
#: Actions in [-1, 1] are kept in hundredths, and the same within so many. Two draws of four numbers whose deviation is
#: 0.1, as TD3's is, are so near in one of 100 rows.
_A_UNIT, SAME_ACTION = 100, 5
#: Rows that are remembered, 20 MB of Meta-World's; then the oldest are forgotten. By rows, so that many short segments
#: push out no more than one long one.
MOST_ROWS = 500 * MAX_RECENT
#: In the folder of each attempt: what it accepted, one behind the other; and the part of it before that.
FILE, BEFORE = "traces.bin", "traces.before.bin"
_HEAD = struct.Struct("<HHHH")


@dataclass(frozen=True)
class Trace:
    """The first observation [O] of an episode of `task`, and its actions [T, A] in hundredths."""

    task: str
    start: F32
    actions: I8

    @classmethod
    def of(cls, segment: Segment) -> Self:
        """That of `segment`."""
        return cls(segment.task, segment.obs[0].copy(), np.round(segment.action * _A_UNIT).astype(np.int8))

    def repeats(self, other: Trace) -> bool:
        """Whether at least half of its rows are those of `other`, step by step."""
        steps = min(len(self.actions), len(other.actions))
        apart = np.abs(self.actions[:steps].astype(np.int16) - other.actions[:steps]).max(axis=1)
        return bool(2 * np.count_nonzero(apart <= SAME_ACTION) >= len(self.actions))

    def packed(self) -> bytes:
        """As a file has it."""
        task = self.task.encode()
        return _HEAD.pack(len(task), self.start.size, *self.actions.shape) + task + self.start.data + self.actions.data


class Traces:
    """Those of the newest `most_rows` rows."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self.rows = 0
        self._most_rows = most_rows
        self._order: deque[str] = deque()
        self._lines: dict[str, list[Trace]] = {}
        self._starts: dict[str, F32] = {}  # of a task's line, and room for more

    def add(self, one: Trace) -> None:
        """Remember `one`, the newest."""
        line = self._lines.setdefault(one.task, [])
        starts = self._starts.get(one.task, np.empty((0, one.start.size), np.float32))
        if len(line) == len(starts):
            starts = np.concatenate([starts, np.empty((len(line) + 16, one.start.size), np.float32)])
        starts[len(line)] = one.start
        self._starts[one.task] = starts
        line.append(one)
        self._order.append(one.task)
        self.rows += len(one.actions)
        while self.rows > self._most_rows and len(self._order) > 1:
            oldest = self._order.popleft()
            self.rows -= len(self._lines[oldest].pop(0).actions)
            self._starts[oldest] = self._starts[oldest][1:]

    def has(self, one: Trace) -> bool:
        """Whether `one` repeats one of them."""
        line = self._lines.get(one.task)
        if not line:
            return False
        apart = np.abs(self._starts[one.task][: len(line)] - one.start).max(axis=1)
        return any(one.repeats(line[i]) for i in np.flatnonzero(apart <= SAME_START))


class TakenBefore:
    """`contents` and `traces` in the order in which they came, for the judge. `contents`: those of the checkpoint and
    of what is taken again. The traces are read from the files of the attempts before.
    """

    def __init__(self, job: Job, contents: Iterable[str], most_rows: int = MOST_ROWS) -> None:
        self.contents = dict.fromkeys(contents)
        self.traces = Traces(most_rows)
        self._folder, self._most_rows = job.attempt_dir, most_rows
        self._written = 0
        for one in _of_elders(job, most_rows):
            self.traces.add(one)

    def add(self, content: str, trace: Trace) -> None:
        """Another one was accepted."""
        self.contents[content] = None
        while len(self.contents) > MAX_RECENT:
            del self.contents[next(iter(self.contents))]
        self.traces.add(trace)
        # A hint alone: what is lost lets a near-duplicate in.
        with contextlib.suppress(OSError):
            if self._written > self._most_rows:
                os.replace(self._folder / FILE, self._folder / BEFORE)
                self._written = 0
            self._written += len(trace.actions)
            with open(self._folder / FILE, "ab") as file:
                file.write(trace.packed())


def _of_elders(job: Job, most_rows: int) -> list[Trace]:
    """The newest `most_rows` rows, the oldest first. Files of older ones go."""
    found: list[Trace] = []
    rows = 0
    for attempt in reversed([number for number in attempt_numbers(job.slot_dir) if number < job.attempt]):
        for name in (FILE, BEFORE):
            path = job.slot_dir / "attempts" / str(attempt) / name
            with contextlib.suppress(OSError):
                if rows >= most_rows:
                    path.unlink(missing_ok=True)
                    continue
                more = list(_unpacked(path.read_bytes()))
                rows += sum(len(one.actions) for one in more)
                found = more + found
    return found


def _unpacked(data: bytes) -> Iterator[Trace]:
    """Up to a torn end."""
    at = 0
    while at + _HEAD.size <= len(data):
        task, numbers, steps, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        start, actions, end = at + task, at + task + 4 * numbers, at + task + 4 * numbers + steps * size
        if end > len(data):
            return
        yield Trace(
            data[at:start].decode(errors="replace"),
            np.frombuffer(data, np.float32, numbers, start),
            np.frombuffer(data, np.int8, steps * size, actions).reshape(steps, size),
        )
        at = end
