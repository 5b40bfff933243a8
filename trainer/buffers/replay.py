"""The replay ring: one ring of rows a task in memory, and blocks of rows on their way to and from the disk.

Rows of a task are numbered from 0 as they come; row n lies at place n mod capacity. So the numbers alone say where
everything lies, and a ring that was filled from blocks is the same, place by place, as the one that they were cut from.
A kind of ring says what a row is: a whole transition (`Replay`), or a frame (`trainer.buffers.frames`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trainer.buffers.rows import BadRowsError, Batch, Fields, joined
from trainer.buffers.storage import DeviceRows, HostRows, Storage
from trainer.envs.spaces import I64, Bools

#: Below this many new rows a loop is quicker than NumPy's calls.
_FEW = 32


@dataclass(frozen=True)
class Block:
    """Consecutive rows of every task: task k's rows `starts[k]` … `starts[k] + counts[k] - 1`, one task after another.

    `arrays` has the ring's fields, each with sum(counts) rows.
    """

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    arrays: dict[str, npt.NDArray[np.generic]]

    @property
    def ends(self) -> tuple[int, ...]:
        """The number of the row after the last, of each task."""
        return tuple(start + count for start, count in zip(self.starts, self.counts, strict=True))

    @property
    def numbers(self) -> tuple[I64, I64]:
        """(task, number) of each row."""
        task = np.repeat(np.arange(len(self.counts)), self.counts)
        first = np.repeat(np.cumsum([0, *self.counts[:-1]]), self.counts)
        return task, np.repeat(np.array(self.starts, np.int64), self.counts) + np.arange(task.shape[0]) - first


def shares(batch_size: int, sizes: I64, turn: int) -> tuple[I64, int]:
    """How many rows of each task a batch takes ([K]), and whose turn it is next.

    Every task that has rows gets the same number; what is left over goes round, starting at `turn`, so that over
    several batches every task is drawn equally often. Errors: ValueError where no task has rows.
    """
    filled = np.flatnonzero(sizes > 0)
    if filled.size == 0:
        raise ValueError("the replay ring is empty: nothing to learn from yet")
    each, left_over = divmod(batch_size, filled.size)
    counts = np.zeros(sizes.shape[0], np.int64)
    counts[filled] = each
    if left_over:
        counts[filled[(turn + np.arange(left_over)) % filled.size]] += 1
    return counts, (turn + left_over) % filled.size


class Ring:
    """`capacity` rows of `fields` in all, split evenly over `num_tasks` rings.

    `counts[k]` is the number of rows that task k ever got; `turn` is the pointer of `shares`. `device`: where they lie;
    None: in the machine's memory. Errors: as `HostRows` and `DeviceRows`.
    """

    def __init__(self, capacity: int, num_tasks: int, fields: Fields, device: torch.device | None = None) -> None:
        self.num_tasks = num_tasks
        self.fields = fields
        self.capacity = capacity // num_tasks
        self.counts: I64 = np.zeros(num_tasks, np.int64)
        self.turn = 0
        rows = self.capacity * num_tasks
        self.storage: Storage = HostRows(rows, fields) if device is None else DeviceRows(rows, fields, device)

    @property
    def sizes(self) -> I64:
        """Rows that each task has in the ring now."""
        return np.minimum(self.counts, self.capacity)

    @property
    def oldest(self) -> I64:
        """The number of the first row of each task that is not overwritten."""
        return np.maximum(0, self.counts - self.capacity)

    @property
    def drawable(self) -> Bools:
        """[K] whether something can be drawn of a task."""
        return self.counts > 0

    @property
    def is_ready(self) -> bool:
        """Whether a batch can be drawn."""
        return bool(self.drawable.any())

    def deal(self, batch_size: int) -> I64:
        """How many rows of each task the next balanced batch takes ([K]). Errors: ValueError where none can be."""
        counts, self.turn = shares(batch_size, np.where(self.drawable, self.sizes, 0), self.turn)
        return counts

    def pick(self, counts: I64, rng: np.random.Generator) -> Batch:
        """`counts[k]` transitions of each task k, one task after another, with independent indices for every task.

        A task with a count above 0 must be `drawable`.
        """
        raise NotImplementedError

    def block_since(self, since: tuple[int, ...]) -> Block:
        """A copy of every row numbered `since[k]` or later that is still in the ring."""
        starts = np.maximum(np.array(since, np.int64), self.oldest)
        numbers = [np.arange(start, end) for start, end in zip(starts, self.counts, strict=True)]
        places = np.concatenate([k * self.capacity + n % self.capacity for k, n in enumerate(numbers)])
        return Block(tuple(map(int, starts)), tuple(n.shape[0] for n in numbers), self.storage.copy(places))

    def put_back(self, block: Block) -> int:
        """Lay the rows of `block` where they lay, as far as they are not overwritten; `counts` must be set before.

        Returns how many that were. Errors: BadRowsError.
        """
        if len(block.starts) != self.num_tasks:
            raise BadRowsError("rows.other-tasks", found=len(block.starts), tasks=self.num_tasks)
        task, number = block.numbers
        alive = (number >= self.oldest[task]) & (number < self.counts[task])
        for name, (shape, kind) in self.fields.items():
            array = block.arrays.get(name)
            if array is None or array.shape != (task.shape[0], *shape) or array.dtype != kind:
                raise BadRowsError("rows.field", field=name)
        kept = slice(None) if alive.all() else alive  # a copy of all would be a whole checkpoint's rows
        self.storage.lay(self._places(task, number)[kept], {name: block.arrays[name][kept] for name in self.fields})
        return int(alive.sum())

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The ring itself, field by field, [num_tasks * capacity, …]: for comparing, not for writing."""
        return self.storage.arrays()

    def rows_of(self, task: int) -> Mapping[str, npt.NDArray[Any]]:
        """What the ring holds of `task`, in no order: for reading."""
        return self.storage.span(task * self.capacity, int(self.sizes[task]))

    def _places(self, task: npt.NDArray[np.integer[Any]], number: I64) -> I64:
        """Where the rows with these numbers lie, or lay."""
        places: I64 = task.astype(np.int64) * self.capacity + number % self.capacity
        return places

    def _numbered(self, task: npt.NDArray[np.integer[Any]]) -> I64:
        """The numbers of new rows, each of its task ([N])."""
        if task.shape[0] <= _FEW:  # a third of what the calls below take
            numbers = np.empty(task.shape[0], np.int64)
            for i, k in enumerate(task.tolist()):
                numbers[i] = self.counts[k]
                self.counts[k] += 1
            return numbers
        order, new = np.argsort(task, kind="stable"), np.bincount(task, minlength=self.num_tasks)
        first = self.counts - np.cumsum([0, *new[:-1]])
        numbers = np.empty(task.shape[0], np.int64)
        numbers[order] = first[task[order]] + np.arange(task.shape[0])
        self.counts += new
        return numbers


class Drawn(NamedTuple):
    """`places` [B] of `ring` whose rows a batch takes, each of a `task` [B]."""

    ring: Replay
    task: I64
    places: I64


class Replay(Ring):
    """A row is a transition, with what was seen before it and after it."""

    def newest(self, task: int, most: int, name: str) -> npt.NDArray[Any]:
        """Field `name` of the newest rows of `task`, `most` at most."""
        numbers = np.arange(max(0, int(self.counts[task]) - min(most, self.capacity)), self.counts[task])
        return self.storage.copy(task * self.capacity + numbers % self.capacity)[name]

    def add(self, task: npt.NDArray[np.integer], rows: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append N transitions ([N, …] of each field), each to the ring of its task ([N])."""
        number = self._numbered(task)
        if task.shape[0] > self.capacity:  # so there may be more of one task than have room: the last ones stay
            kept = number >= self.oldest[task]
            task, number, rows = task[kept], number[kept], {name: rows[name][kept] for name in self.fields}
        self.storage.lay(self._places(task, number), rows)

    def pick(self, counts: I64, rng: np.random.Generator) -> Batch:
        """`counts[k]` transitions of each task k, any of its rows."""
        return self.gathered([self.drawn(counts, rng)])

    def drawn(self, counts: I64, rng: np.random.Generator) -> Drawn:
        """The places of the rows that `pick` takes."""
        task = np.repeat(np.arange(self.num_tasks), counts)
        # `integers` is slow with a bound for each; here a row's chance is even to the 53 bits of a number.
        return Drawn(self, task, task * self.capacity + (rng.random(task.shape[0]) * self.sizes[task]).astype(np.int64))

    def gathered(self, parts: Sequence[Drawn]) -> Batch:
        """A batch of all of them, one after another, where this ring's rows lie: its own rows first, then those of
        rings in the machine's memory that have its fields.
        """
        own, *others = parts
        if not others:
            return Batch.of(self.storage.take(own.places), own.task)
        if isinstance(self.storage, DeviceRows):
            return joined(self.gathered([own]), others[0].ring.gathered(others))
        # In one pass: to join batches takes as long as to draw them.
        ends = np.cumsum([len(part.places) for part in parts]).tolist()
        rows = {name: np.empty((ends[-1], *shape), kind) for name, (shape, kind) in self.fields.items()}
        for part, end in zip(parts, ends, strict=True):
            for name, array in part.ring.arrays().items():
                array.take(part.places, 0, rows[name][end - len(part.places) : end], "clip")  # unbuffered
        return Batch.of(rows, np.concatenate([part.task for part in parts]))
