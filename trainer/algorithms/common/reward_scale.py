"""Rewards on one scale, whatever an environment pays (stable-baselines3's `VecNormalize`)."""

from __future__ import annotations

import numpy as np

from trainer.envs.spaces import F32, F64, Bools
from trainer.nets.normalise import CLIP, RunningMoments


class RewardScale:
    """Rewards divided by the deviation of their discounted sum, as each environment has seen it so far."""

    def __init__(self, moments: RunningMoments, num_envs: int, gamma: float) -> None:
        """`moments`: of all that came so far."""
        self.moments = moments
        self.gamma = gamma
        self.sums: F64 = np.zeros(num_envs)

    def discounted(self, reward: F32) -> F64:
        """The sums [N] with the `reward` [N] of a step, which the moments are to see; `scaled` must follow."""
        self.sums = self.sums * self.gamma + reward
        return self.sums

    def scaled(self, reward: F32, ended: F32) -> F32:
        """[N] rewards of that step on the scale as it is now."""
        self.sums = self.sums * (1 - ended)
        scaled: F32 = np.clip(reward * self.moments.scale[0], -CLIP, CLIP).astype(np.float32)
        return scaled

    def forget(self, lost: Bools) -> None:
        """The sums where `lost` [N]: other episodes begin there."""
        self.sums = np.where(lost, 0.0, self.sums)

    def load(self, sums: F64) -> None:
        """Go on from these sums; environments that are new begin with nothing."""
        kept = np.array(sums, np.float64)[: len(self.sums)]
        self.sums = np.zeros(len(self.sums))
        self.sums[: len(kept)] = kept
