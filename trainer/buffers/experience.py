"""What an off-policy algorithm learns from: its own rows and, bounded, what others sent in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.buffers.contributed import Contributed, parts
from trainer.buffers.replay import Replay, shares
from trainer.buffers.rows import Batch, Fields, joined, with_steps
from trainer.config.training import Training
from trainer.state import State
from trainer.streams import RandomStream, generator


class Experience:
    """`own` rows, and `others`', None until the first of them. Each ring has a random stream of its own, so one that is
    empty changes nothing. `state` has all but the rows, which are written as they come (`trainer.checkpoints.rows`).

    `fields`: of a transition. Where the algorithm's rows may be of several steps, each also says of how many.
    """

    def __init__(self, training: Training, fields: Fields) -> None:
        fields = with_steps(fields) if training.off_policy.sums_steps else fields
        self.own = Replay(training.off_policy.buffer_size, len(training.env.tasks), fields)
        self.others: Contributed | None = None
        self._training = training
        self._sampling = generator(training.seed, RandomStream.SAMPLING)

    @property
    def ring_rows(self) -> int:
        """Others' rows now."""
        return self.others.ring_rows if self.others is not None else 0

    def add(self, task: npt.NDArray[np.integer], rows: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append the run's own transitions."""
        self.own.add(task, rows)

    def welcome(self) -> Contributed:
        """The ring of others' rows, made where there is none yet."""
        if self.others is None:
            self.others = Contributed(self._training, self.own.fields)
        return self.others

    def sample(self, size: int) -> Batch:
        """A batch: own rows and a bounded share of others', of each task that has rows the same number.

        Errors: ValueError where there is no row.
        """
        counts = self.own.deal(size)
        if self.others is None or not self.others.ring_rows:
            return self.own.pick(counts, self._sampling)
        taken = self.others.part_of(counts, self.own.sizes)
        return joined(self.own.pick(counts - taken.sum(axis=0), self._sampling), self.others.pick(taken))

    def others_row(self, size: int) -> dict[str, Any]:
        """For the row of metrics: others' rows, their share of a batch of `size`, and how old their policies were."""
        others = self.others
        if others is None:
            return {}
        taken = parts(shares(size, self.own.sizes, self.own.turn)[0], self.own.sizes, others.sizes).sum()
        return {"rows": others.ring_rows, "share": round(float(taken) / size, 4), **others.lag_row()}

    def state(self) -> State:
        """Counts and random streams."""
        return State(
            {},
            {
                "counts": self.own.counts.tolist(),
                "turn": self.own.turn,
                "sampling": self._sampling.bit_generator.state,
                "others": self.others.state_dict() if self.others is not None else None,
            },
        )

    def load(self, state: State) -> None:
        """As `state` left it; the rows are still to be put back."""
        saved = state.numbers
        self.own.counts = np.array(saved["counts"], np.int64)
        self.own.turn = saved["turn"]
        self._sampling.bit_generator.state = saved["sampling"]
        if saved["others"] is not None:
            self.others = Contributed.from_state(self._training, self.own.fields, saved["others"])
