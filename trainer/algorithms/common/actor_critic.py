"""The nets of PPO and A2C: an actor, a critic, and the scales of what they read.

Shapes: B rows, I numbers that a net reads, P parameters of the distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.compiled import CompiledActorCritic, choose_engine
from trainer.algorithms.common.cuda_graph import ENGINE
from trainer.algorithms.common.observations import EncoderInput
from trainer.algorithms.common.optimizers import clip_gradients, in_groups, optimizer_step
from trainer.algorithms.common.parts import count, torch_generator
from trainer.config.settings import OnPolicySettings
from trainer.config.training import Training
from trainer.envs.spaces import F32, I32, Box, Obs, Spaces
from trainer.nets.critics import NetInputs, StateReader
from trainer.nets.mlp import MLP, flattened, orthogonal
from trainer.nets.normalise import RunningMoments
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.streams import RandomStream

#: The gain of the policy's last layer: its first actions are near the middle, and all alike (detail 2 of the "37").
_LAST_GAIN = 0.01


class EvaluatedSteps(NamedTuple):
    """What both nets say of B rows, [B] each: of the actions that were done, and of what is to come."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


class ActorCritic:
    """Both nets, all that is `learned` with them, and the scales of what is seen and paid: all that shards share."""

    def __init__(self, context: Context) -> None:
        training, spaces = context.training, context.spaces
        settings = cast("OnPolicySettings", training.algorithm)
        self.device = context.device
        self.actor, reader, self.critic = actor_and_critic(
            training, spaces, torch_generator(training.seed_of_nets, RandomStream.NETS)
        )
        self.actor.to(self.device)
        self.critic.to(self.device)
        flat = [flattened([self.actor.body]), flattened([self.critic])]
        free = [self.actor.free] if self.actor.distribution.free else []
        encoders = list(self.actor.encoders.parameters())
        self.learned: list[nn.Parameter] = [*flat, *free, *encoders]
        self.groups = in_groups(self.learned, (encoders, training.network.encoder.lr_scale))
        self.encoder_input = EncoderInput(self.actor, reader, spaces, self.device, normalises=settings.normalise_obs)
        self.reward_moments = RunningMoments(1)
        self.compiled = CompiledActorCritic(self.actor, self.critic) if context.way == ENGINE else None

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

    @torch.no_grad()
    def outputs(self, seen: Obs, tasks: I32) -> Tensor:
        """[N, P] the policy's parameters, for scaled observations."""
        tasks_64 = tasks.astype(np.int64)
        if self.compiled is not None:
            rows = torch.from_numpy(self.encoder_input.actor_rows(seen, tasks_64))
            return self.actor.with_free(self.compiled.outputs(self.compiled.actor, rows))
        return self.actor.of_inputs(self.encoder_input.inputs(seen, tasks_64).policy)

    @torch.no_grad()
    def value(self, seen: Obs, tasks: I32) -> F32:
        """[N] what the critic thinks of scaled observations."""
        tasks_64 = tasks.astype(np.int64)
        if self.compiled is not None:
            rows = torch.from_numpy(self.encoder_input.critic_rows(seen, tasks_64))
            return self.compiled.outputs(self.compiled.critic, rows)[:, 0].numpy()
        values: F32 = self.critic(self.encoder_input.inputs(seen, tasks_64).critics)[:, 0].cpu().numpy()
        return values

    @torch.no_grad()
    def log_prob_and_value(self, inputs: NetInputs, action: Tensor) -> tuple[Tensor, Tensor]:
        """([B] of `action`, [B])."""
        if self.compiled is not None:
            outputs = self.actor.with_free(self.compiled.outputs(self.compiled.actor, inputs.policy))
            value = self.compiled.outputs(self.compiled.critic, inputs.critics)[:, 0]
            return self.actor.distribution.log_prob(outputs, action), value
        outputs = self.actor.of_inputs(inputs.policy)
        return self.actor.distribution.log_prob(outputs, action), self.critic(inputs.critics)[:, 0]

    def evaluate(self, inputs: NetInputs, action: Tensor) -> EvaluatedSteps:
        """Of B rows in which `action` was done."""
        outputs, distribution = self.actor.of_inputs(inputs.policy), self.actor.distribution
        log_prob, entropy = distribution.log_prob(outputs, action), distribution.entropy(outputs)
        return EvaluatedSteps(log_prob, entropy, self.critic(inputs.critics)[:, 0])

    def backward(self, loss: Tensor) -> None:
        """Leave the gradients of `loss` in all that is learned."""
        for parameter in self.learned:
            if parameter.grad is not None:
                parameter.grad.zero_()
        loss.backward()  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """What is learned, and what the optimizer remembers, were loaded."""
        if self.compiled is not None:
            self.compiled.forget()

    def step(self, optimizer: torch.optim.Optimizer, learning_rate: float, grad_clip: float) -> None:
        """One optimizer step down the gradients that are there; 0 does not clip."""
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["part"]
        if self.compiled is not None:
            self.compiled.step(optimizer, self.learned, grad_clip)
            return
        if grad_clip:
            clip_gradients(self.learned, grad_clip)
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


def choose_way(
    training: Training, spaces: Spaces, device: torch.device, recorded: str | None
) -> tuple[str, str | None] | None:
    """As `Algorithm.choose_launch_mode`, on a CPU; None: elsewhere."""
    if device.type != "cpu":
        return None
    actor = actor_and_critic(training, spaces, None)[0]
    return choose_engine(training, recorded, is_plain=not actor.encoders and actor.trunk is None)


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
