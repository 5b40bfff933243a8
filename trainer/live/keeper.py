"""Keeps one episode of a training, its seed and its actions: all that it takes to play it again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.envs.shown import NO_SEED, Glimpse

#: Of the actions of one episode: what is longer is shown up to there.
MOST_BYTES = 8 * 2**20


class KeptEpisode(NamedTuple):
    """An episode: `actions` [T, …] after a reset with `seed`, and their return `total` after all but the last one."""

    seed: int
    actions: npt.NDArray[Any]
    total: float


class EpisodeKeeper:
    """Is given a glimpse of one environment after each step, and waits for an episode's first."""

    def __init__(self) -> None:
        self._number = -1
        self._begin(None)

    def add(self, glimpse: Glimpse, number: int) -> KeptEpisode | None:
        """The episode, where this ends it. `number`: of the step, so that a missed one is known: an episode that was
        not seen as a whole is left out.
        """
        is_next, self._number = number == self._number + 1, number
        steps, standing = len(self._actions), (glimpse.episode, glimpse.step)
        if not steps or not is_next or standing not in {(self._episode, steps + 1), (self._episode + 1, 0)}:
            self._begin(glimpse)
            return None
        self._actions.append(glimpse.action)
        if glimpse.step and (steps + 2) * self._actions[0].nbytes <= MOST_BYTES:
            self._total = glimpse.total
            return None
        kept = KeptEpisode(self._seed, np.array(self._actions), self._total)
        self._begin(None)
        return kept

    def _begin(self, glimpse: Glimpse | None) -> None:
        self._episode, self._seed, self._total = -1, NO_SEED, 0.0
        self._actions: list[Any] = []
        if glimpse is not None and glimpse.step == 1 and glimpse.seed != NO_SEED and glimpse.action is not None:
            self._episode, self._seed, self._total = glimpse.episode, glimpse.seed, glimpse.total
            self._actions.append(glimpse.action)
