"""Demonstrations beside a run's own rows: a second buffer, of which each batch has a part.

RLPD (Ball et al. 2023, "Efficient Online Reinforcement Learning with Offline Data", arXiv 2302.02948) draws half of
each batch from demonstrations, and half from what the run itself did. So here; of each task that part of its rows. They
are laid down when an attempt begins, and nothing is ever added or overwritten, so a checkpoint has their random stream
alone.

Shapes: K tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.buffers.contributed import whole
from trainer.buffers.frames import FrameReplay
from trainer.buffers.rows import Batch
from trainer.config.settings import OffPolicySettings
from trainer.envs.spaces import I64, Obs, Spaces
from trainer.streams import RandomStream, generator


class ShownEpisode(NamedTuple):
    """One of `task`, of L steps: `frames` [L + 1, *frame] of each key, and of its `steps` what `FrameReplay` adds."""

    task: int
    frames: Obs
    steps: Mapping[str, npt.NDArray[Any]]


class Demonstrated:
    """The rows, and their random stream. Frames are kept once, whatever the run's own rows are: stacks, clips and sums
    of several steps are made when a batch is drawn. Until `lay` it has no rows.
    """

    def __init__(self, settings: OffPolicySettings, seed: int) -> None:
        self._settings = settings
        self._share = settings.demos_share
        self._sampling = generator(seed, RandomStream.DEMOS_SAMPLING)
        self.ring: FrameReplay | None = None

    def load(self, saved: Mapping[str, Any]) -> None:
        """As `state_dict` left it; the rows are still to be laid down."""
        self._sampling.bit_generator.state = saved["sampling"]

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; all but the rows."""
        return {"sampling": self._sampling.bit_generator.state}

    def lay(self, spaces: Spaces, episodes: Iterable[ShownEpisode], rows: I64) -> None:
        """Take `episodes`, which have `rows` [K] frames of each task; `spaces`: of what is kept."""
        settings, tasks = self._settings, len(spaces.tasks)
        gamma: float = settings.gamma if settings.sums_steps else 1.0  # type: ignore[attr-defined]
        self.ring = FrameReplay(int(rows.max()) * tasks, tasks, spaces, settings.steps_summed, gamma)
        for task, frames, steps in episodes:
            self.ring.add_episode(task, frames, steps)

    def part_of(self, counts: I64, left: I64) -> I64:
        """How many of a batch's `counts` [K] rows are to come from here, [K], where `left` [K] of them are not others'.

        Of each task the share that was asked for, on average, and never so many that less than half of the batch is the
        run's own: then others' rows come off this share. Draws one number.
        """
        wanted = np.minimum(self._share * counts, np.maximum(0, left - counts / 2))
        most = max(0, int(left.sum()) - -(-int(counts.sum()) // 2))
        # Of a task that others' rows fill up more than half is theirs: then the other tasks give way.
        wanted *= min(1.0, most / max(1.0, wanted.sum()))
        taken: I64 = whole(wanted[None], self._sampling.random(), most)[0]
        return taken

    def pick(self, counts: I64) -> Batch:
        """`counts[k]` transitions of each task k, as `part_of` gave them."""
        assert self.ring is not None  # noqa: S101 - laid down before the first update
        return self.ring.pick(counts, self._sampling)
