"""The nets of PPO and A2C."""

from __future__ import annotations

from typing import cast

import torch

from trainer.config.settings import OnPolicySettings
from trainer.config.training import Training
from trainer.envs.spaces import Box, Spaces
from trainer.nets.mlp import MLP, orthogonal
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.nets.twins import StateReader

#: The gain of the policy's last layer: its first actions are near the middle, and all alike (detail 2 of the "37").
_LAST_GAIN = 0.01


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
