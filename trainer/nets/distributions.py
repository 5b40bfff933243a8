"""What actions are drawn from: pure functions of a net's outputs, and of noise that the caller draws on the CPU."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, Box, Discrete
from trainer.errors import FieldError

#: Of the entropy of actions that are one of several (CleanRL, sac_atari.py).
_SHARE_OF_ENTROPY = 0.89
#: Where the log standard deviation is cut off, as stable-baselines3 and McLean et al.'s code have it. BRC and MOORE
#: squeeze it into [-10, 2] by a tanh instead: that begins at deviations of 0.02, and moves it up to six times as far a
#: step. With one temperature for all tasks, more trainings missed a reward so (bench/learning.py).
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)


class Distribution(ABC):
    """Of actions, by `parameters` numbers for each row; the last `free` of them are the same for every row, whatever
    is observed.
    """

    NAME: ClassVar[str]
    parameters: int
    free: int = 0

    @abstractmethod
    def __init__(self, action: Box | Discrete) -> None:
        """Errors: FieldError for a kind of action that it has no density over."""

    @abstractmethod
    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """What `sample` takes, drawn on the CPU."""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions, and their log density [B], from `outputs` [B, parameters]; differentiable where that is possible."""

    @abstractmethod
    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The actions of `sample` alone."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """[B], of actions that `sample` gave."""

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """The action that is taken where nothing is to be tried, bounded."""

    def entropy(self, outputs: Tensor) -> Tensor:
        """[B], for those that PPO and A2C learn by."""
        raise NotImplementedError

    def clip(self, actions: Tensor) -> Tensor:
        """What an environment is given of `sample`'s actions."""
        return actions

    def compared(self, outputs: Tensor) -> Tensor:
        """[B, C] numbers that decide `mode`, and come out nearly alike on every machine."""
        return self.mode(outputs)


class TanhNormal(Distribution):
    """tanh of a Gaussian over the numbers of a Box: its mean and its log standard deviation, side by side (Haarnoja et
    al. 2018, arXiv 1801.01290).
    """

    NAME = "squashed-normal"

    def __init__(self, action: Box | Discrete) -> None:
        self.size = numbers_of(action, self.NAME)
        self.parameters = 2 * self.size

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        return torch.randn(rows, self.size, generator=generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        return sample(*gaussian(outputs), noise)

    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = gaussian(outputs)
        return torch.tanh(mean + log_std.exp() * noise)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = gaussian(outputs)
        # Near the bounds float32 has no digits left to tell actions apart.
        limit = 1 - torch.finfo(actions.dtype).eps
        u = torch.atanh(actions.clamp(-limit, limit))
        return log_prob(u, log_std, (u - mean) / log_std.exp())

    def mode(self, outputs: Tensor) -> Tensor:
        return torch.tanh(gaussian(outputs)[0])


class Normal(Distribution):
    """A Gaussian over the numbers of a Box: its mean, and a log standard deviation that does not depend on what is
    observed. Its actions are clipped where they are carried out, and its density is of what it drew (Huang et al. 2022,
    "The 37 implementation details of PPO", details for continuous actions 1 to 6).

    With `tanh` the mean is tanh of the outputs, and what is drawn around it explores: the log standard deviation is set
    and not learned (Fujimoto et al. 2018, TD3, arXiv 1802.09477). Nobody learns by the derivatives of that.
    """

    NAME = "normal"

    def __init__(self, action: Box | Discrete, *, tanh: bool = False) -> None:
        self.size = self.free = numbers_of(action, self.NAME)
        self.parameters = 2 * self.size
        self._squashes = tanh

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        return torch.randn(rows, self.size, generator=generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        return self.draw(outputs, noise), self._density(outputs[..., self.size :], noise)

    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self._mean(outputs) + outputs[..., self.size :].exp() * noise

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        log_std = outputs[..., self.size :]
        return self._density(log_std, (actions - self._mean(outputs)) * torch.exp(-log_std))

    def entropy(self, outputs: Tensor) -> Tensor:
        return outputs[..., self.size :].sum(-1) + self.size * (0.5 + _HALF_LOG_2PI)

    def clip(self, actions: Tensor) -> Tensor:
        return actions.clamp(ACTION_LOW, ACTION_HIGH)

    def mode(self, outputs: Tensor) -> Tensor:
        return self.clip(self._mean(outputs))

    def _mean(self, outputs: Tensor) -> Tensor:
        mean = outputs[..., : self.size]
        return torch.tanh(mean) if self._squashes else mean

    def _density(self, log_std: Tensor, noise: Tensor) -> Tensor:
        return (noise.square() * -0.5 - log_std).sum(-1) - self.size * _HALF_LOG_2PI


class Categorical(Distribution):
    """One of n, by their logits."""

    NAME = "categorical"

    def __init__(self, action: Box | Discrete) -> None:
        if not isinstance(action, Discrete):
            raise FieldError("distribution.needs-choice", distribution=self.NAME)
        self.parameters = action.n

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """Standard Gumbel, [B, n]."""
        uniform = torch.rand(rows, self.parameters, generator=generator)
        return -torch.log(-torch.log(uniform.clamp(min=torch.finfo(uniform.dtype).tiny)))

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        actions = self.draw(outputs, noise)
        return actions, self.log_prob(outputs, actions)

    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """[B] int64: the largest of logits and noise is drawn by the probabilities (Gumbel 1954)."""
        return (outputs + noise).argmax(-1)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return torch.log_softmax(outputs, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        log = torch.log_softmax(outputs, -1)
        return -(log.exp() * log).sum(-1)

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)

    def compared(self, outputs: Tensor) -> Tensor:
        """Log probabilities, [B, n]: of two that are as likely, one machine takes this and another that. Divided by the
        row's largest logit where that is above 1: float32 has seven digits of a logit, wherever its point stands.
        """
        largest = outputs.abs().amax(-1, keepdim=True).clamp(min=1.0)
        return torch.log_softmax(outputs, -1) / largest


#: By their names.
DISTRIBUTIONS: dict[str, Callable[[Box | Discrete], Distribution]] = {
    **{kind.NAME: kind for kind in (TanhNormal, Normal, Categorical)},
    "tanh-noise": partial(Normal, tanh=True),
}


def numbers_of(action: Box | Discrete, distribution: str) -> int:
    """How many numbers an action has. Errors: FieldError where it is one of several."""
    if not isinstance(action, Box):
        raise FieldError("distribution.needs-numbers", distribution=distribution)
    return action.size


def gaussian(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation [B, A] before the squashing, the latter cut off at -20 and 2."""
    mean, raw = outputs.chunk(2, dim=-1)
    return mean, raw.clamp(LOG_STD_MIN, LOG_STD_MAX)


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions [B, A] in (-1, 1) and their log density [B], reparametrised by standard normal `noise` [B, A]."""
    u = mean + log_std.exp() * noise
    return torch.tanh(u), log_prob(u, log_std, noise)


def log_prob(u: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
    """Of the actions tanh u that `noise` led to: [B].

    log(1 - tanh²u) is taken as 2(log 2 - u - softplus(-2u)), which does not lose its digits for large |u|.
    """
    terms = noise.square().mul_(-0.5).sub(log_std).add(u, alpha=2).add(nn.functional.softplus(-2 * u), alpha=2)
    return terms.sum(-1) - noise.shape[-1] * (_HALF_LOG_2PI + 2 * _LOG_2)


def usual_entropy(action: Box | Discrete) -> float:
    """What the entropy of actions is steered to where nobody says otherwise, in nats: minus the numbers of an action
    (Haarnoja et al. 2018, arXiv 1812.05905), or a share of the largest there can be (CleanRL, sac_atari.py).
    """
    return -float(action.size) if isinstance(action, Box) else _SHARE_OF_ENTROPY * math.log(action.n)
