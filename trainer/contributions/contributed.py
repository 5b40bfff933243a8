"""Rows that others sent in: a ring of their own beside the run's, and what is remembered about them.

They earn no updates and count as no steps: they only make up a bounded share of the batches. Everything in here changes
at barriers only and is part of the checkpoint, so a resumed run samples the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trainer.config import Training
from trainer.replay import CONTRIBUTED_FIELDS, I64, Batch, Replay

#: The most of a batch that others may make up: enough to help, too little to take the training over.
MAX_SHARE = 0.30
#: The ring's size as a part of the run's own, 3/7: full rings hold others' rows in the same proportion.
_PARTS, _OF = 3, 7
#: The spawn key of this ring's random stream; the run's others are 0 to 3 (`trainer.state`, `mtsac.create`).
_SAMPLING = 4
#: Contents remembered to know a duplicate by: whole episodes of 500 steps make this 5 million rows, more than a lag of
#: policies lets in; in a checkpoint it is below 1 MB.
MAX_RECENT = 10_000


def parts(counts: I64, own: I64, others: I64) -> npt.NDArray[np.float64]:
    """How many of a batch's `counts` [K] rows are to come from others, on average: of each task as many as their part
    of its rows (`own`, `others` [K]), and never above `MAX_SHARE`. So whoever sends what, no task weighs more.
    """
    wanted: npt.NDArray[np.float64] = counts * np.minimum(MAX_SHARE, others / np.maximum(1, own + others))
    return wanted


def whole(wanted: npt.NDArray[np.float64], chance: float, most: int) -> I64:
    """Whole numbers ([K]) whose mean over `chance`, uniform in [0, 1), is `wanted`; at most `most` in all."""
    reached = np.floor(np.concatenate([[0.0], np.cumsum(wanted)]) + chance).astype(np.int64)
    taken: I64 = np.diff(reached)
    while taken.sum() > most:
        taken[(taken - wanted).argmax()] -= 1
    return taken


def capacity_of(training: Training) -> int:
    """The ring's rows a task."""
    return max(1, training.buffer_size // len(training.tasks) * _PARTS // _OF)


class Contributed:
    """The ring, its random stream, the contributors by number, and the contents seen lately.

    `recent`: content hash → step of the policy that acted. `segments`: how many were ever taken. `restarts`: how often
    the ring was built anew because a contributor was dropped; rows are then numbered from 0 again.
    """

    def __init__(self, training: Training) -> None:
        self.ring = Replay(capacity_of(training) * len(training.tasks), len(training.tasks), CONTRIBUTED_FIELDS)
        self.sampling = np.random.default_rng(np.random.SeedSequence(training.seed, spawn_key=(_SAMPLING,)))
        self.sources: list[str] = []
        self.recent: dict[str, int] = {}
        self.segments = 0
        self.restarts = 0
        self._lags: list[int] = []

    @classmethod
    def from_state(cls, training: Training, saved: Mapping[str, Any]) -> Self:
        """As `state_dict` left it; the ring's rows are still to be put back."""
        made = cls(training)
        made.ring.counts, made.ring.turn = np.array(saved["counts"], np.int64), saved["turn"]
        made.sampling.bit_generator.state = saved["sampling"]
        made.sources, made.recent = list(saved["sources"]), dict(saved["recent"])
        made.segments, made.restarts = saved["segments"], saved["restarts"]
        made._lags = list(saved["lags"])
        return made

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; all but the ring's rows."""
        return {
            "counts": self.ring.counts.tolist(),
            "turn": self.ring.turn,
            "sampling": self.sampling.bit_generator.state,
            "sources": list(self.sources),
            "recent": dict(self.recent),
            "segments": self.segments,
            "restarts": self.restarts,
            "lags": list(self._lags),
        }

    @property
    def ring_rows(self) -> int:
        """Rows in the ring now."""
        return int(self.ring.sizes.sum())

    def add(
        self,
        who: str,
        rows: Mapping[str, npt.NDArray[Any]],
        *,
        task: int,
        content: str,
        policy_step: int,
        step: int,
    ) -> None:
        """Take a segment's transitions (`rows`: `trainer.replay.FIELDS`) of task number `task`, sent by `who`.

        `policy_step`: the step of the oldest policy that acted in it; `step`: now.
        """
        if who not in self.sources:
            self.sources.append(who)
        count = rows["reward"].shape[0]
        tasks = np.full(count, task, np.int64)
        self.ring.add(task=tasks, source=np.full(count, self.sources.index(who), np.int16), **rows)
        self.recent[content] = policy_step
        while len(self.recent) > MAX_RECENT:
            del self.recent[next(iter(self.recent))]
        self.segments += 1
        self._lags.append(max(0, step - policy_step))

    def rows_of(self, who: str) -> int:
        """How many rows of `who` the ring holds."""
        if who not in self.sources:
            return 0
        return self.ring.count_of("source", self.sources.index(who))

    def drop(self, who: str) -> None:
        """Forget every row of `who`."""
        if who in self.sources:
            self.ring = self.ring.without("source", self.sources.index(who))
            self.restarts += 1

    def part_of(self, counts: I64, own: I64) -> I64:
        """How many of a batch's `counts` [K] rows come from here; `own` [K]: the run's own rows. Draws one number."""
        wanted = parts(counts, own, self.ring.sizes)
        return whole(wanted, self.sampling.random(), int(MAX_SHARE * counts.sum()))

    def pick(self, counts: I64) -> Batch:
        """`counts[k]` rows of each task k, as `part_of` gave them."""
        return self.ring.pick(counts, self.sampling)

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
