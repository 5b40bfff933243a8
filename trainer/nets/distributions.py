"""The squashed Gaussian actor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer.nets.mlp import MLP

#: Range of the log standard deviation. The floor keeps the density finite; BRC and MOORE use it too.
LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0
HALF_RANGE = 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)


class GaussianActor(nn.Module):
    """tanh of a Gaussian over actions: [B, inputs] → mean and log standard deviation, each [B, actions].

    The latter is squeezed into [-10, 2] by a tanh of its own. Without a generator: as an `MLP`.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], actions: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.body = MLP(inputs, hidden, 2 * actions, generator)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the squashing."""
        mean, raw = self.body(x).chunk(2, dim=-1)
        return mean, LOG_STD_MIN + HALF_RANGE * (torch.tanh(raw) + 1)


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions [B, A] in (-1, 1) and their log density [B], reparametrised by standard normal `noise` [B, A]."""
    u = mean + log_std.exp() * noise
    return torch.tanh(u), log_density(u, log_std, noise)


def log_density(u: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
    """Of the actions tanh u that `noise` led to: [B].

    log(1 - tanh²u) is taken as 2(log 2 - u - softplus(-2u)), which does not lose its digits for large |u|.
    """
    terms = noise.square().mul_(-0.5).sub(log_std).add(u, alpha=2).add(nn.functional.softplus(-2 * u), alpha=2)
    return terms.sum(-1) - noise.shape[-1] * (_HALF_LOG_2PI + 2 * _LOG_2)
