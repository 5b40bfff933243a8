"""What actions are drawn from: pure functions of a net's outputs, and of noise that the caller draws on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from trainer.envs.spaces import Box, Discrete

#: Range of the log standard deviation. The floor keeps the density finite; BRC and MOORE use it too.
LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0
_HALF_RANGE = 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
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
    return mean, LOG_STD_MIN + _HALF_RANGE * (torch.tanh(raw) + 1)


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions [B, A] in (-1, 1) and their log density [B], reparametrised by standard normal `noise` [B, A].

    log(1 - tanh²u) is taken as 2(log 2 - u - softplus(-2u)), which does not lose its digits for large |u|.
    """
    u = mean + log_std.exp() * noise
    return torch.tanh(u), _log_density(u, log_std, noise)


def _log_density(u: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
    terms = noise.square().mul_(-0.5).sub(log_std).add(u, alpha=2).add(nn.functional.softplus(-2 * u), alpha=2)
    return terms.sum(-1) - noise.shape[-1] * (_HALF_LOG_2PI + 2 * _LOG_2)


@dataclass(frozen=True)
class Draw:
    """What `draw` made, and what `output_gradient` needs of the way there. All but `log_density` [B] are [B, A]."""

    action: Tensor
    log_density: Tensor
    step: Tensor
    """Standard deviation times noise."""
    squeeze: Tensor
    """tanh of the net's outputs for log_std."""


def draw(outputs: Tensor, noise: Tensor) -> Draw:
    """As `gaussian` and `sample`, from the outputs [B, 2 A] of the actor's body."""
    mean, raw = outputs.chunk(2, dim=-1)
    squeeze = torch.tanh(raw)
    log_std = squeeze.add(1).mul_(_HALF_RANGE).add_(LOG_STD_MIN)
    step = log_std.exp().mul_(noise)
    u = mean + step
    return Draw(torch.tanh(u), _log_density(u, log_std, noise), step, squeeze)


def output_gradient(drawn: Draw, action_gradient: Tensor, density_gradient: Tensor) -> Tensor:
    """The derivative by the body's outputs [B, 2 A] of a loss with `action_gradient` [B, A] and `density_gradient` [B].

    With a = tanh u the log density changes by 2 a with u (the squashing) and by -1 with log_std besides.
    """
    action, density = drawn.action, density_gradient.unsqueeze(-1)
    by_u = action_gradient * (1 - action.square()) + 2 * density * action
    by_log_std = by_u * drawn.step - density
    return torch.cat([by_u, by_log_std.mul_(_HALF_RANGE).mul_(1 - drawn.squeeze.square())], dim=-1)
