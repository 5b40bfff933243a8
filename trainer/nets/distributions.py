"""What actions are drawn from: pure functions of a net's outputs, and of noise that the caller draws on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True)
class Derivatives:
    """`log_prob` and `entropy` [B], and their derivatives by the outputs [B, P]."""

    log_prob: Tensor
    log_prob_by_outputs: Tensor
    entropy: Tensor
    entropy_by_outputs: Tensor


class Distribution(Protocol):
    """Of actions, by `parameters` numbers for each row; the last `free` of them are the same for every row, whatever
    is observed.
    """

    parameters: int
    free: int

    def __init__(self, action: Box | Discrete) -> None:
        """Errors: FieldError for a kind of action that it has no density over."""

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """What `sample` takes, drawn on the CPU."""

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions, and their log density [B], from `outputs` [B, parameters]; differentiable where that is possible."""

    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The actions of `sample` alone."""

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """[B], of actions that `sample` gave."""

    def entropy(self, outputs: Tensor) -> Tensor:
        """[B] nats. Errors: NotImplementedError where there is no formula for it."""

    def derivatives(self, outputs: Tensor, actions: Tensor) -> Derivatives:
        """Of densities and entropies by `outputs`. Errors: NotImplementedError, as `entropy`."""

    def clip(self, actions: Tensor) -> Tensor:
        """What an environment is given of `sample`'s actions."""

    def mode(self, outputs: Tensor) -> Tensor:
        """The action that is taken where nothing is to be tried, bounded."""

    def compared(self, outputs: Tensor) -> Tensor:
        """[B, C] numbers that decide `mode`, and come out nearly alike on every machine."""


class TanhNormal:
    """tanh of a Gaussian over the numbers of a Box: its mean and its log standard deviation, side by side (Haarnoja et
    al. 2018, arXiv 1801.01290).
    """

    def __init__(self, action: Box | Discrete) -> None:
        if not isinstance(action, Box):
            raise FieldError("distribution.needs-numbers", distribution="squashed-normal")
        self.size = action.size
        self.parameters = 2 * action.size
        self.free = 0

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """Standard normal, [B, A]."""
        return torch.randn(rows, self.size, generator=generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparametrised by `noise`."""
        return sample(*gaussian(outputs), noise)

    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Within (-1, 1)."""
        mean, log_std = gaussian(outputs)
        return torch.tanh(mean + log_std.exp() * noise)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Of actions within (-1, 1); near the bounds float32 has no digits left to tell them apart."""
        mean, log_std = gaussian(outputs)
        limit = 1 - torch.finfo(actions.dtype).eps
        u = torch.atanh(actions.clamp(-limit, limit))
        return log_prob(u, log_std, (u - mean) / log_std.exp())

    def entropy(self, outputs: Tensor) -> Tensor:
        """There is no formula for a squashed Gaussian's."""
        raise NotImplementedError("a squashed-normal's entropy is the mean of -log_prob over samples")

    def derivatives(self, outputs: Tensor, actions: Tensor) -> Derivatives:
        """Those that there are stand in `trainer.nets.fused`."""
        raise NotImplementedError("a squashed-normal has no entropy to differentiate")

    def clip(self, actions: Tensor) -> Tensor:
        """They lie within."""
        return actions

    def mode(self, outputs: Tensor) -> Tensor:
        """tanh(mean)."""
        return torch.tanh(gaussian(outputs)[0])

    def compared(self, outputs: Tensor) -> Tensor:
        """The action itself."""
        return self.mode(outputs)


class Normal:
    """A Gaussian over the numbers of a Box: its mean, and a log standard deviation that does not depend on what is
    observed. Its actions are clipped where they are carried out, and its density is of what it drew (Huang et al. 2022,
    "The 37 implementation details of PPO", details for continuous actions 1 to 6).
    """

    def __init__(self, action: Box | Discrete) -> None:
        if not isinstance(action, Box):
            raise FieldError("distribution.needs-numbers", distribution="normal")
        self.size = action.size
        self.parameters = 2 * action.size
        self.free = action.size

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """Standard normal, [B, A]."""
        return torch.randn(rows, self.size, generator=generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparametrised by `noise`."""
        return self.draw(outputs, noise), self._density(outputs[..., self.size :], noise)

    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Any real numbers."""
        return outputs[..., : self.size] + outputs[..., self.size :].exp() * noise

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Of any real numbers."""
        mean, log_std = outputs.chunk(2, dim=-1)
        return self._density(log_std, (actions - mean) * torch.exp(-log_std))

    def entropy(self, outputs: Tensor) -> Tensor:
        """Of what is drawn, before it is clipped."""
        return outputs[..., self.size :].sum(-1) + self.size * (0.5 + _HALF_LOG_2PI)

    def derivatives(self, outputs: Tensor, actions: Tensor) -> Derivatives:
        """With z = (action - mean) / std they are z / std and z² - 1; the entropy is the sum of log_std."""
        mean, log_std = outputs.chunk(2, dim=-1)
        inverse = torch.exp(-log_std)
        noise = (actions - mean) * inverse
        by_outputs = torch.cat([noise * inverse, noise.square() - 1], dim=-1)
        entropy_by_outputs = torch.zeros_like(outputs)
        entropy_by_outputs[:, self.size :] = 1.0
        return Derivatives(self._density(log_std, noise), by_outputs, self.entropy(outputs), entropy_by_outputs)

    def clip(self, actions: Tensor) -> Tensor:
        """Clipped."""
        return actions.clamp(ACTION_LOW, ACTION_HIGH)

    def mode(self, outputs: Tensor) -> Tensor:
        """The mean."""
        return self.clip(outputs[..., : self.size])

    def compared(self, outputs: Tensor) -> Tensor:
        """The action itself."""
        return self.mode(outputs)

    def _density(self, log_std: Tensor, noise: Tensor) -> Tensor:
        return (noise.square() * -0.5 - log_std).sum(-1) - self.size * _HALF_LOG_2PI


class TanhNoise(Normal):
    """tanh of the outputs, over the numbers of a Box, and to explore a Gaussian around it, whose log standard deviation
    is set and not learned (Fujimoto et al. 2018, TD3, arXiv 1802.09477). Clipped, and of a density, as `Normal`.
    """

    def __init__(self, action: Box | Discrete) -> None:
        if not isinstance(action, Box):
            raise FieldError("distribution.needs-numbers", distribution="tanh-noise")
        super().__init__(action)

    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Around the tanh."""
        return super().draw(self._squashed(outputs), noise)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Of any real numbers."""
        return super().log_prob(self._squashed(outputs), actions)

    def derivatives(self, outputs: Tensor, actions: Tensor) -> Derivatives:
        """Nothing learns by them."""
        raise NotImplementedError("a tanh-noise's density is not learned by")

    def mode(self, outputs: Tensor) -> Tensor:
        """It lies within."""
        return torch.tanh(outputs[..., : self.size])

    def _squashed(self, outputs: Tensor) -> Tensor:
        return torch.cat([self.mode(outputs), outputs[..., self.size :]], dim=-1)


class Categorical:
    """One of n, by their logits."""

    def __init__(self, action: Box | Discrete) -> None:
        if not isinstance(action, Discrete):
            raise FieldError("distribution.needs-choice", distribution="categorical")
        self.parameters = action.n
        self.free = 0

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """Standard Gumbel, [B, n]."""
        uniform = torch.rand(rows, self.parameters, generator=generator)
        return -torch.log(-torch.log(uniform.clamp(min=torch.finfo(uniform.dtype).tiny)))

    def sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The largest of logits and noise is drawn by the probabilities (Gumbel 1954); [B] int64."""
        actions = self.draw(outputs, noise)
        return actions, self.log_prob(outputs, actions)

    def draw(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """[B] int64."""
        return (outputs + noise).argmax(-1)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """The log probability."""
        return torch.log_softmax(outputs, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Of the probabilities."""
        log = torch.log_softmax(outputs, -1)
        return -(log.exp() * log).sum(-1)

    def derivatives(self, outputs: Tensor, actions: Tensor) -> Derivatives:
        """With probabilities p and entropy H they are [chosen] - p, and -p (log p + H)."""
        log = torch.log_softmax(outputs, -1)
        probability = log.exp()
        entropy = -(probability * log).sum(-1)
        chosen = actions.unsqueeze(-1)
        by_outputs = (-probability).scatter_add_(-1, chosen, torch.ones_like(chosen, dtype=outputs.dtype))
        entropy_by_outputs = -probability * (log + entropy.unsqueeze(-1))
        return Derivatives(log.gather(-1, chosen).squeeze(-1), by_outputs, entropy, entropy_by_outputs)

    def clip(self, actions: Tensor) -> Tensor:
        """All there are, are allowed."""
        return actions

    def mode(self, outputs: Tensor) -> Tensor:
        """The likeliest."""
        return outputs.argmax(-1)

    def compared(self, outputs: Tensor) -> Tensor:
        """Log probabilities, [B, n]: of two that are as likely, one machine takes this and another that. Divided by the
        row's largest logit where that is above 1: float32 has seven digits of a logit, wherever its point stands.
        """
        largest = outputs.abs().amax(-1, keepdim=True).clamp(min=1.0)
        return torch.log_softmax(outputs, -1) / largest


#: Name → what makes it.
DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "squashed-normal": TanhNormal,
    "tanh-noise": TanhNoise,
    "normal": Normal,
    "categorical": Categorical,
}


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
