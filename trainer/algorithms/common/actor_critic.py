"""The nets of PPO and A2C: an actor, a critic, and the scales of what they read.

Shapes: B rows, I numbers that a net reads, P parameters of the distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.observations import EncoderInput
from trainer.algorithms.common.optimizers import clip_gradients, in_groups, optimizer_step
from trainer.algorithms.common.parts import count, torch_generator
from trainer.config.settings import OnPolicySettings
from trainer.config.training import Training
from trainer.envs.spaces import F32, I32, Box, Obs, Spaces
from trainer.nets.critics import NetInputs, StateReader
from trainer.nets.distributions import Derivatives
from trainer.nets.fused import Stacked
from trainer.nets.mlp import MLP, orthogonal
from trainer.nets.normalise import RunningMoments
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.streams import RandomStream

#: The gain of the policy's last layer: its first actions are near the middle, and all alike (detail 2 of the "37").
_LAST_GAIN = 0.01


@dataclass(frozen=True)
class EvaluatedSteps:
    """What both nets say of B rows (`value` [B]), and what the way back needs: the values of their layers."""

    policy: Derivatives
    value: Tensor
    actor_layers: Sequence[Tensor]
    critic_layers: Sequence[Tensor]


class ActorCritic:
    """Both nets, all that is `learned` with them, and the scales of what is seen and paid: all that shards share.

    Both nets are differentiated by hand (`trainer.nets.fused`), where torch records nothing, and what reads pictures by
    torch.
    """

    def __init__(self, context: Context) -> None:
        training, spaces = context.training, context.spaces
        settings = cast("OnPolicySettings", training.algorithm)
        self.device = context.device
        self.actor, reader, self.critic = actor_and_critic(
            training, spaces, torch_generator(training.seed_of_nets, RandomStream.NETS)
        )
        self.actor.to(self.device)
        self.critic.to(self.device)
        self._actor_stack, self._critic_stack = Stacked([self.actor.body]), Stacked([self.critic])
        free = [self.actor.free] if self.actor.distribution.free else []
        encoders = list(self.actor.encoders.parameters())
        self.learned: list[nn.Parameter] = [self._actor_stack.flat, self._critic_stack.flat, *free, *encoders]
        self.groups = in_groups(self.learned, (encoders, training.network.encoder.lr_scale))
        self.encoder_input = EncoderInput(self.actor, reader, spaces, self.device, normalises=settings.normalise_obs)
        self.reward_moments = RunningMoments(1)

    @property
    def policy(self) -> PolicyNet:
        """The actor, with the scale of what was seen so far."""
        self.encoder_input.scale_policy()
        return self.actor

    def parts(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """By the names of a checkpoint; `optimizer`: of all that is learned."""
        moments = {f"moments/{key}": moments for key, moments in self.encoder_input.moments.items()}
        nets = {"policy": self.policy, "critic": self.critic}
        return {**nets, "adam.all": optimizer, "rewards": self.reward_moments, **moments}

    def outputs(self, seen: Obs, tasks: I32) -> Tensor:
        """[N, P] the policy's parameters, for scaled observations."""
        reads, stack = self.encoder_input, self._actor_stack
        tasks_64 = tasks.astype(np.int64)
        if not reads.encodes and stack.is_quick_for(len(tasks)):
            return self.actor.with_free(torch.from_numpy(stack.forward_few(reads.actor_rows(seen, tasks_64))))
        return self.actor.with_free(stack.forward(reads.inputs(seen, tasks_64).policy)[-1][0])

    @torch.no_grad()
    def value(self, seen: Obs, tasks: I32) -> F32:
        """[N] what the critic thinks of scaled observations."""
        reads, stack = self.encoder_input, self._critic_stack
        tasks_64 = tasks.astype(np.int64)
        if not reads.encodes and stack.is_quick_for(len(tasks)):
            return stack.forward_few(reads.critic_rows(seen, tasks_64))[:, 0]
        values: F32 = stack.forward(reads.inputs(seen, tasks_64).critics)[-1][0, :, 0].cpu().numpy()
        return values

    def log_prob_and_value(self, inputs: NetInputs, action: Tensor) -> tuple[Tensor, Tensor]:
        """([B] of `action`, [B])."""
        outputs = self.actor.with_free(self._actor_stack.forward(inputs.policy)[-1][0])
        log_prob = self.actor.distribution.log_prob(outputs, action)
        return log_prob, self._critic_stack.forward(inputs.critics)[-1][0, :, 0]

    def evaluate(self, inputs: NetInputs, action: Tensor) -> EvaluatedSteps:
        """Of B rows in which `action` was done."""
        actor_layers = self._actor_stack.forward(inputs.policy.detach())
        critic_layers = self._critic_stack.forward(inputs.critics.detach())
        outputs = self.actor.with_free(actor_layers[-1][0])
        policy = self.actor.distribution.derivatives(outputs, action)
        return EvaluatedSteps(policy, critic_layers[-1][0, :, 0], actor_layers, critic_layers)

    def backward(
        self, inputs: NetInputs, now: EvaluatedSteps, by_log_prob: Tensor, by_value: Tensor, entropy_bonus: float
    ) -> None:
        """Leave the gradients of all that is learned: of a loss with these derivatives [B] by the log density and the
        value of `now`, less `entropy_bonus` times the sum of its entropies.
        """
        by_outputs = by_log_prob.unsqueeze(-1) * now.policy.log_prob_by_outputs
        if entropy_bonus:
            by_outputs -= entropy_bonus * now.policy.entropy_by_outputs
        free = self.actor.distribution.free
        if free:
            self.actor.free.grad = by_outputs[:, -free:].sum(0)
            by_outputs = by_outputs[:, :-free]
        reads = self.encoder_input.encodes
        shared = reads and not self.encoder_input.reader.is_apart
        by_inputs = self._actor_stack.backward(now.actor_layers, by_outputs.unsqueeze(0), to_inputs=reads)
        by_shared = self._critic_stack.backward(now.critic_layers, by_value[None, :, None], to_inputs=shared)
        if reads:
            self.actor.encoders.zero_grad()
            inputs.policy.backward((by_inputs + by_shared if shared else by_inputs)[0])  # type: ignore[no-untyped-call]

    def step(self, optimizer: torch.optim.Optimizer, learning_rate: float, grad_clip: float) -> None:
        """One optimizer step down the gradients that are there; 0 does not clip."""
        if grad_clip:
            clip_gradients(self.learned, grad_clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["part"]
        optimizer_step(optimizer)


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


def sizes_of(training: Training, spaces: Spaces, moments: int) -> Sequence[NetSize]:
    """The actor and the critic, whose optimizer has so many `moments`."""
    policy, _, critic = actor_and_critic(training, spaces, None)
    network = training.network
    nets: Mapping[str, tuple[tuple[int, ...], nn.Module]] = {
        "actor": (network.actor_hidden, policy),
        "critic": (network.critic_hidden, critic),
    }
    return [
        NetSize(f"the {name}", f"network.{name}_hidden", widths, count(net), values=sum(widths), moments=moments)
        for name, (widths, net) in nets.items()
    ]
