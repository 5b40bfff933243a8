"""What actions are drawn from: pure functions of a net's outputs, and of noise that the caller draws on the CPU."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

from trainer.envs.spaces import Box, Discrete

#: Range of the log standard deviation. The floor keeps the density finite; BRC and MOORE use it too.
LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0
HALF_RANGE = 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)


class Distribution(Protocol):
    """Of actions, by `parameters` numbers for each row."""

    parameters: int

    def __init__(self, action: Box | Discrete) -> None:
        """Errors: ValueError, a sentence, for a kind of action that it has no density over."""

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """What `sample` takes, drawn on the CPU."""

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions, and their log density [B], from `outputs` [B, parameters]; differentiable where that is possible."""

    def mode(self, outputs: Tensor) -> Tensor:
        """The action that is taken where nothing is to be tried."""


class TanhNormal:
    """tanh of a Gaussian over the numbers of a Box: its mean and its log standard deviation, side by side (Haarnoja et
    al. 2018, arXiv 1801.01290).
    """

    def __init__(self, action: Box | Discrete) -> None:
        if not isinstance(action, Box):
            raise ValueError("tanh-normal is for actions of real numbers, and these are one of several")  # noqa: TRY004
        self.size = action.size
        self.parameters = 2 * action.size

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """Standard normal, [B, A]."""
        return torch.randn(rows, self.size, generator=generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparametrised by `noise`."""
        return sample(*gaussian(outputs), noise)

    def mode(self, outputs: Tensor) -> Tensor:
        """tanh(mean)."""
        return torch.tanh(gaussian(outputs)[0])


#: Name → what makes it.
DISTRIBUTIONS: dict[str, type[TanhNormal]] = {"tanh-normal": TanhNormal}


def gaussian(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation [B, A] before the squashing, the latter squeezed into [-10, 2] by a tanh."""
    mean, raw = outputs.chunk(2, dim=-1)
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
