"""Advantage actor-critic, synchronous (Mnih et al. 2016, arXiv 1602.01783): one update for each short rollout.

PPO with one epoch of one update and no clipping is the same (Huang et al. 2022, arXiv 2205.09123).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from trainer.algorithms.common.onpolicy import Minibatch, OnPolicy, normalised
from trainer.config.algorithms import A2c


class Algorithm(OnPolicy):
    """One update of a whole rollout."""

    METRICS: ClassVar[tuple[str, ...]] = ("policy_loss", "value_loss", "entropy")
    MOMENTS: ClassVar[int] = 1
    settings: A2c

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """RMSprop."""
        settings = self.settings
        return torch.optim.RMSprop(groups, lr=settings.learning_rate, alpha=settings.rms_alpha, eps=settings.rms_eps)

    def weigh(self, batch: Minibatch, log_prob: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Of the mean of -log_prob · A: the policy gradient."""
        advantage = normalised(batch.advantage) if self.settings.normalise_advantage else batch.advantage
        return advantage / -len(advantage), [-(log_prob * advantage).mean()]

    @property
    def batch_size(self) -> int:
        """All of it."""
        return self._rollout.capacity * self._rollout.num_envs

    @property
    def epochs(self) -> int:
        """Once."""
        return 1
