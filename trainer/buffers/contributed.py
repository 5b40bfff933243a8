"""Rows that others sent in: rings of their own beside the run's, and what is remembered about them.

There may be two of them: rows of contributors, and rows of the other slots of a group (docs/groups.md).
Each contributor has the same room for each task, so nobody's rows push out another's, however much is sent; and in a
batch none has more than its part of what others may make up, and less where its rows pay less than the run's own.
They earn no updates and count as no steps. Everything in here changes at barriers only and is part of the checkpoint,
so a resumed run samples the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.buffers.replay import Block, Drawn, Replay
from trainer.buffers.rows import STEPS, Batch, Fields
from trainer.config.settings import EPISODES_KEPT
from trainer.envs.spaces import F64, I64
from trainer.streams import RandomStream, generator

#: The most of a batch that others may make up: enough to help, too little to take the training over.
MAX_SHARE = 0.30
#: The ring's size as a part of the run's own, 3/7: full rings hold others' rows in the same proportion.
_PARTS, _OF = 3, 7
#: Rows of the run's own with which a contributor's are compared, of its task: ten episodes of 500.
COMPARED = 5_000
#: A segment of so many rows moves a contributor's mean half of the way.
_HALF = 2_000
#: Contents remembered to know a duplicate by: whole episodes of 500 steps make this 5 million rows, more than a lag of
#: policies lets in; in a checkpoint it is below 1 MB. More only where more than 50 slots give each other episodes.
MAX_RECENT = 10_000


def remembered(slots: int) -> int:
    """How many contents are remembered where so many other slots give: what each keeps for the others lies there still,
    and is not to be taken twice. Enough where all give at about one pace.
    """
    return max(MAX_RECENT, EPISODES_KEPT * slots)


def pays(reward: npt.NDArray[np.floating[Any]], own: npt.NDArray[np.floating[Any]]) -> float:
    """How many of the pairs of a row of `reward` [T] and one of `own` [N] the first one wins, as a part; of equal ones
    half. 0.5: they pay alike, whatever they are counted in.
    """
    order = np.sort(own)
    wins = np.searchsorted(order, reward, "left").sum() + np.searchsorted(order, reward, "right").sum()
    return float(wins / (2 * len(reward) * len(own)))


class RingSizes(NamedTuple):
    """How many rows each contributor has of each task (`sizes` [S, K]), all have of each (`of_task` [K]), how many
    have any, and which part of its share each gets of each task (`weights` [S, K]).
    """

    sizes: I64
    of_task: I64
    givers: int
    weights: F64

    @classmethod
    def of(cls, sizes: I64, weights: F64 | float = 1.0) -> RingSizes:
        """Where they have `sizes`."""
        givers = int(np.count_nonzero(sizes.any(axis=1)))
        return cls(sizes, sizes.sum(axis=0), givers, np.broadcast_to(weights, sizes.shape))


def parts(counts: I64 | F64, own: I64, others: RingSizes, share: float = MAX_SHARE) -> F64:
    """How many of a batch's `counts` [K] rows are to come from each of S others, on average, [S, K].

    Of each task as many as their part of its rows (`own` [K] beside them), and never above `share` in all nor
    above an equal part of that for one of them. So no task weighs more, and no contributor crowds out another,
    whatever is sent. What a weight takes from a contributor goes to the run's own rows.
    """
    each = share / max(1, others.givers)
    wanted: F64 = counts * np.minimum(each, others.sizes / np.maximum(1, own + others.of_task)) * others.weights
    return wanted


def whole(wanted: npt.NDArray[np.float64], chance: float, most: int) -> I64:
    """Whole numbers (as many as `wanted` [S, K] has) whose mean over `chance`, uniform in [0, 1), is `wanted`; at most
    `most` in all, and of no task more than its sum rounded up, however many contributors share it.
    """
    by_task = wanted.T.ravel()  # neighbours are rounded together
    taken: I64 = (by_task.cumsum() + chance).astype(np.int64)
    taken[1:] -= taken[:-1].copy()
    while taken.sum() > most:
        taken[(taken - by_task).argmax()] -= 1
    return taken.reshape(wanted.T.shape).T


def capacity_of(buffer_size: int, tasks: int) -> int:
    """Rows a task, of all contributors together, beside `buffer_size` rows of the run's own."""
    return max(1, buffer_size // tasks * _PARTS // _OF)


def group_capacity_of(buffer_size: int, tasks: int, share: float) -> int:
    """Rows a task, of all other slots together: full rings hold them in the proportion of `share` of a batch."""
    return max(1, int(buffer_size // tasks * share / (1 - share)))


class Contributed:
    """The rings, their random stream, the contributors by number, and the contents seen lately.

    `ring`: task k of contributor s lies in its ring number s * K + k. `recent`: content hash → step of the policy that
    acted. `paid`: contributor → of each task a mean of `pays`, 0.5 before the first. `segments`: how many were ever
    taken. `restarts`: how often all was laid out anew because a contributor came
    or went; rows are then numbered from 0 again.
    """

    def __init__(
        self,
        buffer_size: int,
        tasks: int,
        seed: int,
        fields: Fields,
        *,
        capacity: int | None = None,
        stream: RandomStream = RandomStream.OTHERS_SAMPLING,
    ) -> None:
        self._tasks = tasks
        #: Rows a task, of all of them together.
        self.capacity = capacity_of(buffer_size, tasks) if capacity is None else capacity
        self._rows = self.capacity * self._tasks
        self._buffer = buffer_size
        self._is_of_group = stream is RandomStream.GROUP_SAMPLING
        self.ring = Replay(self._rows, self._tasks, fields)
        self.sampling = generator(seed, stream)
        self.sources: list[str] = []
        self._last: dict[str, int] = {}
        self.recent: dict[str, int] = {}
        self.paid: dict[str, list[float]] = {}
        self.segments = 0
        self.restarts = 0
        self._lags: list[int] = []
        self._ring_sizes: RingSizes | None = None

    def put_back(self, saved: Mapping[str, Any]) -> None:
        """As `state_dict` left it; the ring's rows are still to be put back."""
        self.ring = Replay(self._rows, len(saved["counts"]), self.ring.fields)
        self.ring.counts = np.array(saved["counts"], np.int64)
        self.sampling.bit_generator.state = saved["sampling"]
        self.sources, self.recent = list(saved["sources"]), dict(saved["recent"])
        self._last = dict(saved["last"])
        self.paid = {who: list(means) for who, means in saved.get("paid", {}).items()}  # of an older version: none
        self.segments, self.restarts = saved["segments"], saved["restarts"]
        self._lags = list(saved["lags"])
        self._ring_sizes = None

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; all but the ring's rows."""
        return {
            "counts": self.ring.counts.tolist(),
            "sampling": self.sampling.bit_generator.state,
            "sources": list(self.sources),
            "last": dict(self._last),
            "recent": dict(self.recent),
            **({"paid": {who: list(means) for who, means in self.paid.items()}} if self.paid else {}),
            "segments": self.segments,
            "restarts": self.restarts,
            "lags": list(self._lags),
        }

    @property
    def ring_rows(self) -> int:
        """Rows in the ring now."""
        return int(self.ring_sizes.of_task.sum())

    def add(
        self,
        who: str,
        rows: Mapping[str, npt.NDArray[Any]],
        *,
        task: int,
        content: str,
        policy_step: int,
        step: int,
        paid: float | None = None,
    ) -> None:
        """Take a segment's transitions of task number `task`, sent by `who`. `rows`: of the ring's fields; where these
        say of how many steps a row is, one each.

        `policy_step`: the step of the oldest policy that acted in it; `step`: now; `paid`: `pays` of it, None where
        there is nothing to compare it with.
        """
        self._last[who] = step
        present = [name for name in self.sources if step - self._last[name] <= self._buffer]
        if who not in present or len(present) < len(self.sources):
            self._lay_out(present if who in present else [*present, who])
        count = rows["reward"].shape[0]
        lane = np.full(count, self.sources.index(who) * self._tasks + task, np.int64)
        self.ring.add(lane, {**rows, STEPS: np.ones(count, np.uint8)} if STEPS in self.ring.fields else rows)
        if paid is not None:
            means = self.paid.setdefault(who, [0.5] * self._tasks)
            means[task] += (paid - means[task]) * count / (count + _HALF)
        self.recent[content] = policy_step
        while len(self.recent) > remembered(len(self.sources) if self._is_of_group else 0):
            del self.recent[next(iter(self.recent))]
        self.segments += 1
        self._ring_sizes = None
        self._lags.append(max(0, step - policy_step))

    @property
    def ring_sizes(self) -> RingSizes:
        """Rows in the rings. Kept between two changes: every batch asks."""
        if self._ring_sizes is None:
            sizes = self.ring.sizes.reshape(-1, self._tasks)
            weights = np.ones(sizes.shape)
            for number, who in enumerate(self.sources):
                weights[number] = self.weights_of(who)
            self._ring_sizes = RingSizes.of(sizes, weights)
        return self._ring_sizes

    def weights_of(self, who: str) -> F64:
        """Which part of its share of a batch `who` gets of each task, [K]: all where its rows pay what the run's own
        do, nothing where each pays less than all of these.
        """
        weights: F64 = np.minimum(1.0, 2 * np.array(self.paid.get(who, [0.5] * self._tasks)))
        return weights

    @property
    def sizes(self) -> I64:
        """Rows in the rings, [S, K]."""
        return self.ring_sizes.sizes

    def rows_of(self, who: str) -> int:
        """How many rows of `who` there are."""
        return int(self.sizes[self.sources.index(who)].sum()) if who in self.sources else 0

    def drop(self, who: str) -> None:
        """Forget every row of `who`."""
        if who in self.sources:
            self._lay_out([name for name in self.sources if name != who])

    def part_of(self, counts: I64, own: I64, share: float = MAX_SHARE) -> I64:
        """How many of a batch's `counts` [K] rows come from each contributor, [S, K], at most `share` of all; `own`
        [K]: the run's own rows.

        Draws one number.
        """
        wanted = parts(counts, own, self.ring_sizes, share)
        return whole(wanted, self.sampling.random(), int(share * counts.sum()))

    def drawn(self, counts: I64, rng: np.random.Generator | None = None) -> Drawn:
        """`counts[s, k]` rows of each contributor s and task k, as `part_of` gave them; with a stream of their own, or
        `rng`.
        """
        drawn = self.ring.drawn(counts.ravel(), rng or self.sampling)
        return drawn._replace(task=drawn.task % self._tasks)

    def pick(self, counts: I64, rng: np.random.Generator | None = None) -> Batch:
        """The rows that `drawn` draws."""
        return self.ring.gathered([self.drawn(counts, rng)])

    def lag_row(self) -> dict[str, Any]:
        """Segments taken since the last call, and how many steps behind their policies were."""
        lags, self._lags = self._lags, []
        if not lags:
            return {"segments": 0}
        return {
            "segments": len(lags),
            "lag_min": min(lags),
            "lag_mean": round(sum(lags) / len(lags), 1),
            "lag_max": max(lags),
        }

    def _lay_out(self, sources: list[str]) -> None:
        """Rings of the same size for `sources`, which keep their newest rows as far as these fit."""
        old, before = self.ring.block_since((0,) * self.ring.num_tasks), self.sources
        ends = np.cumsum(old.counts)
        lanes = len(sources) * self._tasks
        ring = Replay(self._rows, max(lanes, self._tasks), self.ring.fields)
        places: list[npt.NDArray[np.int64]] = []
        for who in sources:
            for task in range(self._tasks):
                lane = before.index(who) * self._tasks + task if who in before else None
                kept = 0 if lane is None else min(old.counts[lane], ring.capacity)
                end = 0 if lane is None else int(ends[lane])
                places.append(np.arange(end - kept, end))
        places += [np.arange(0)] * (ring.num_tasks - lanes)
        ring.counts = np.array([len(part) for part in places], np.int64)
        rows = np.concatenate(places)
        arrays = {name: array[rows] for name, array in old.arrays.items()}
        ring.put_back(Block((0,) * ring.num_tasks, tuple(map(len, places)), arrays))
        self.ring, self.sources = ring, sources
        self._last = {who: self._last[who] for who in sources}
        self.paid = {who: self.paid[who] for who in sources if who in self.paid}
        self.restarts += 1
        self._ring_sizes = None
