"""Rewards on one scale, whatever an environment pays (stable-baselines3's `VecNormalize`)."""

from __future__ import annotations

import numpy as np

from trainer.envs.spaces import F32, F64
from trainer.nets.normalise import CLIP, RunningMoments
from trainer.state import State


class RewardScale:
    """Rewards divided by the deviation of their discounted sum, as each environment has seen it so far."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.moments = RunningMoments(1)
        self.gamma = gamma
        self.sums: F64 = np.zeros(num_envs)

    def add(self, reward: F32, ended: F32) -> F32:
        """[N] rewards of a step, on the scale of all that came, this one included."""
        self.sums = self.sums * self.gamma + reward
        self.moments.add(self.sums[:, None])
        self.sums = self.sums * (1 - ended)
        scaled: F32 = np.clip(reward * self.moments.scale[0], -CLIP, CLIP).astype(np.float32)
        return scaled

    def state(self) -> State:
        """All of it."""
        moments = self.moments.state()
        return State({**moments.tensors, "sums": self.sums.copy()}, moments.numbers)

    def load(self, state: State) -> None:
        """Go on from there; environments that are new begin with nothing."""
        self.moments.load(state)
        kept = np.array(state.tensors["sums"], np.float64)[: len(self.sums)]
        self.sums[: len(kept)] = kept
