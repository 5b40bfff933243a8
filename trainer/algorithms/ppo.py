"""Proximal policy optimisation, with a clipped ratio (Schulman et al. 2017, arXiv 1707.06347).

The details are those of Huang et al. 2022, "The 37 implementation details of PPO", as stable-baselines3 has them: no
clipping of values, and a time limit is no end.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from trainer.algorithms.common.onpolicy import Minibatch, OnPolicy, normalised
from trainer.config.algorithms import Ppo

#: As far as `target_kl` may be passed (stable-baselines3).
_KL_SLACK = 1.5


class Algorithm(OnPolicy):
    """Several epochs of small updates for each rollout."""

    METRICS: ClassVar[tuple[str, ...]] = ("policy_loss", "kl", "clip_fraction", "value_loss", "entropy")
    settings: Ppo

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Adam."""
        settings, fused = self.settings, self.device.type in {"cpu", "cuda"}
        return torch.optim.Adam(groups, lr=settings.learning_rate, eps=settings.adam_eps, fused=fused)

    def weigh(self, batch: Minibatch, log_prob: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Of the mean of -min(ratio · A, clipped ratio · A): nothing where the ratio went too far already."""
        settings = self.settings
        advantage = normalised(batch.advantage) if settings.normalise_advantage else batch.advantage
        log_ratio = log_prob - batch.log_prob
        ratio = log_ratio.exp()
        gain, clipped = ratio * advantage, ratio.clamp(1 - settings.clip, 1 + settings.clip) * advantage
        by_log_prob = torch.where(gain <= clipped, gain, 0.0) / -len(gain)
        # Schulman's estimate, which is never below 0 (joschu.net/blog/kl-approx.html).
        kl = (ratio - 1 - log_ratio).mean()
        outside = ((ratio - 1).abs() > settings.clip).float().mean()
        return by_log_prob, [-torch.minimum(gain, clipped).mean(), kl, outside]

    def judge(self, measured: Tensor) -> bool:
        """As above: the policy may have gone too far."""
        limit = self.settings.target_kl
        return limit > 0 and float(measured[self.METRICS.index("kl")]) > _KL_SLACK * limit

    @property
    def batch_size(self) -> int:
        """B: of one shard, where there are several."""
        return self.settings.batch_size // self.settings.shards

    @property
    def epochs(self) -> int:
        """How often a rollout is learned from."""
        return self.settings.epochs
