"""The nets of PPO and A2C, and all that is learned with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import nn

from trainer.algorithms.base import Context
from trainer.algorithms.common.autograd import in_groups
from trainer.algorithms.common.reading import Reading
from trainer.algorithms.common.tensors import (
    clip_gradients,
    copied,
    load_moments,
    moments_of,
    named,
    take_step,
    torch_generator,
    under,
)
from trainer.config.settings import OnPolicySettings
from trainer.config.training import Training
from trainer.envs.spaces import Box, Spaces
from trainer.nets.fused import Stacked
from trainer.nets.mlp import MLP, orthogonal
from trainer.nets.normalise import RunningMoments
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.nets.twins import StateReader
from trainer.state import State
from trainer.streams import RandomStream

#: The gain of the policy's last layer: its first actions are near the middle, and all alike (detail 2 of the "37").
_LAST_GAIN = 0.01


class ActorCritic:
    """An actor, a critic, their optimizer, and the scales of what is seen and paid: all that a training's shards share.

    Both nets are differentiated by hand (`trainer.nets.fused`), and what reads pictures by torch.
    """

    MOMENTS: ClassVar[int] = 2
    """What its optimizer remembers of each number that is learned."""

    def __init__(self, context: Context) -> None:
        training, spaces = context.training, context.spaces
        self.settings = cast("OnPolicySettings", training.algorithm)
        self.device = context.device
        self._policy, reader, self.critic = actor_and_critic(
            training, spaces, torch_generator(training.seed_of_nets, RandomStream.NETS)
        )
        self._policy.to(self.device)
        self.critic.to(self.device)
        self._stacks = Stacked([self._policy.body]), Stacked([self.critic])
        learned = [stack.flat for stack in self._stacks]
        learned += [self._policy.free] if self._policy.distribution.free else []
        encoders = list(self._policy.encoders.parameters())
        self.learned: Sequence[nn.Parameter] = [*learned, *encoders]
        self.optimizer = self.make_optimizer(in_groups(self.learned, (encoders, training.network.encoder.lr_scale)))
        self._reading = Reading(self._policy, reader, spaces, self.device, normalises=self.settings.normalise_obs)
        self.reward_moments = RunningMoments(1)

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Of what is learned."""
        raise NotImplementedError

    @property
    def policy(self) -> PolicyNet:
        """With the scale of what was seen so far."""
        self._reading.follow()
        return self._policy

    @property
    def moments(self) -> Mapping[str, RunningMoments]:
        """Of each observation that is brought to a scale."""
        return self._reading.moments

    def descend(self, learning_rate: float) -> None:
        """One step of all that is learned, down the gradients that are there."""
        if self.settings.grad_clip:
            clip_gradients(self.learned, self.settings.grad_clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group["part"]
        take_step(self.optimizer)

    def learned_state(self) -> State:
        """All of it."""
        tensors = {
            **named("policy", self.policy.learned_state()),
            **named("critic", self.critic.state_dict()),
            **moments_of("all", self.optimizer),
        }
        numbers: dict[str, Any] = {}
        for name, moments in self._scales():
            state = moments.state()
            tensors |= named(name, {key: torch.from_numpy(array) for key, array in state.tensors.items()})
            numbers[name] = dict(state.numbers)
        return State(copied(tensors), numbers)

    def load_learned(self, state: State) -> None:
        """Go on from there."""
        tensors = state.tensors
        self._policy.load_learned(under("policy", tensors))
        self.critic.load_state_dict(under("critic", tensors))
        load_moments("all", self.optimizer, tensors)
        for name, moments in self._scales():
            moments.load(
                State({key: value.numpy() for key, value in under(name, tensors).items()}, state.numbers[name])
            )

    def _scales(self) -> Iterator[tuple[str, RunningMoments]]:
        yield "rewards", self.reward_moments
        yield from self._reading.parts()


def actor_and_critic(
    training: Training, spaces: Spaces, init: torch.Generator | None
) -> tuple[PolicyNet, StateReader, MLP]:
    """The nets of `training`, and what the critic reads; weights are drawn from `init`; None: on torch's `meta` device,
    to be counted.
    """
    settings, network = cast("OnPolicySettings", training.algorithm), training.network
    distribution = "normal" if isinstance(spaces.action, Box) else "categorical"
    policy = PolicyNet(PolicySpec(spaces.of_policy, network, distribution, settings.normalise_obs), init)
    reader = StateReader(spaces, policy)
    critic = MLP(reader.width, network.critic_hidden, 1, init, activation=network.activation)
    if init is not None:
        orthogonal(policy.body, init, _LAST_GAIN)
        orthogonal(critic, init, 1.0)
    return policy, reader, critic
