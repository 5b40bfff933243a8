"""Two critics that judge alike, and what they read beside or in place of what the policy reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import Spaces
from trainer.nets.inputs import with_task
from trainer.nets.mlp import MLP
from trainer.nets.policy import PolicyNet
from trainer.nets.trunk import Trunk


class NetInputs(NamedTuple):
    """What the policy reads [B, I], and what critics read [B, C]."""

    policy: Tensor
    critics: Tensor


class StateReader:
    """What critics read of `seen` observations: the policy's `inputs`, or, where the spaces have what they alone see,
    that and the policy's rows of numbers, and no pictures (asymmetric: Pinto et al. 2017, arXiv 1710.06542).
    """

    def __init__(self, spaces: Spaces, policy: PolicyNet) -> None:
        seen = {key: spec for key, spec in spaces.obs.items() if spec.privileged or len(spec.shape) == 1}
        self.is_apart = any(spec.privileged for spec in spaces.obs.values())
        self.keys = sorted(seen)
        self._tasks = len(spaces.tasks)
        self.width = sum(seen[key].shape[0] for key in self.keys) + self._tasks if self.is_apart else policy.width

    def inputs(self, seen: Mapping[str, Tensor], task: Tensor, of_policy: Tensor) -> NetInputs:
        """Of both, where the policy reads `of_policy`."""
        if not self.is_apart:
            return NetInputs(of_policy, of_policy)
        return NetInputs(of_policy, with_task(torch.cat([seen[key] for key in self.keys], dim=-1), task, self._tasks))


class TwinCritics(nn.Module):
    """[B, inputs] and, where they are numbers, [B, actions] → [2, B, outputs]; behind one trunk, where there is one.

    Without a generator they have shapes and no numbers, as an `MLP`.
    """

    def __init__(
        self, inputs: int, actions: int, network: Network, outputs: int, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.trunk = Trunk(inputs, network.trunk, generator) if network.trunk else None
        width = (network.trunk or inputs) + actions
        self.nets = nn.ModuleList(
            MLP(width, network.critic_hidden, outputs, generator, activation=network.activation) for _ in range(2)
        )

    def forward(self, inputs: Tensor, action: Tensor | None = None) -> Tensor:
        """What both say."""
        read = self._read(inputs, action)
        return torch.stack([net(read) for net in self.nets]).float()

    def first(self, inputs: Tensor, action: Tensor) -> Tensor:
        """What the first one says: [B, outputs]."""
        said: Tensor = self.nets[0](self._read(inputs, action))
        return said.float()

    def _read(self, inputs: Tensor, action: Tensor | None) -> Tensor:
        read = inputs if self.trunk is None else self.trunk(inputs)
        return read if action is None else torch.cat([read, action], -1)
