"""Critics: plain ones, two that share what they read, and the regularised one of residual blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import Spaces
from trainer.nets.mlp import MLP, Trunk, make_room, with_task
from trainer.nets.policy import PolicyNet

#: Numbers that a task is described by (BRC).
EMBEDDING = 32


class Critic(MLP):
    """Q(s, a) of `inputs` numbers x = [obs, one-hot task] and `actions`: [B, inputs], [B, actions] → [B, 1].

    `heads` = K: a head a task, after a body that all share; a row takes the one that its one-hot task (the last K
    numbers of x) names. All heads are computed for all rows: K columns more in the cheapest of the products, and no
    loop over tasks (McLean et al. 2025; rainx0r/mtrl, nn/multi_head.py). `heads` = 1: one for all.
    """

    def __init__(
        self, inputs: int, actions: int, hidden: Sequence[int], generator: torch.Generator | None, *, heads: int = 1
    ) -> None:
        super().__init__(inputs + actions, hidden, heads, generator)
        self.heads = heads

    def forward(self, x: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]
        outputs = super().forward(torch.cat([x, action], dim=-1))
        return (outputs * self.chosen(x)).sum(-1, keepdim=True)

    def chosen(self, x: Tensor) -> Tensor:
        """[B, heads]: 1 for the output of each row's own task, else 0."""
        return x.new_ones(x.shape[0], 1) if self.heads == 1 else x[:, -self.heads :]


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
        read = self._read(inputs, action)
        return torch.stack([net(read) for net in self.nets]).float()

    def first(self, inputs: Tensor, action: Tensor) -> Tensor:
        """What the first one says: [B, outputs]."""
        said: Tensor = self.nets[0](self._read(inputs, action))
        return said.float()

    def _read(self, inputs: Tensor, action: Tensor | None) -> Tensor:
        read = inputs if self.trunk is None else self.trunk(inputs)
        return read if action is None else torch.cat([read, action], -1)


class ResidualCritic(nn.Module):
    """Residual blocks with layer normalisation, and a learned embedding in place of the one-hot.

    BroNet of Nauman et al. 2024 (BRO, arXiv 2405.16158), as Nauman et al. 2025 (BRC, arXiv 2505.23150) use it for many
    tasks at once: Linear-LayerNorm-ReLU, then blocks x + LayerNorm(Linear(ReLU(LayerNorm(Linear(x))))), then the
    outputs. Weights are orthogonal with gain √2, biases zero. Unlike BRC's, whose actor reads the critic's embedding,
    each critic here has an embedding of its own and the actor keeps the one-hot: a published actor then needs nothing
    of a critic.

    `inputs` numbers x = [obs, one-hot task of K] and `actions` → [B, outputs], with `blocks` blocks `width` wide.

    Without a generator it has shapes and no numbers, as an `MLP`.
    """

    def __init__(
        self,
        inputs: int,
        tasks: int,
        actions: int,
        width: int,
        blocks: int,
        outputs: int,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.tasks = tasks
        embedding = torch.empty(tasks, EMBEDDING, device="meta" if generator is None else "cpu")
        self.embedding = nn.Parameter(embedding if generator is None else embedding.normal_(generator=generator))
        self.first = _linear(inputs - tasks + EMBEDDING + actions, width, generator)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(_Block(width, generator) for _ in range(blocks))
        self.last = _linear(width, outputs, generator)

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        obs, task = x[:, : -self.tasks], x[:, -self.tasks :]
        described = task @ nn.functional.normalize(self.embedding, dim=-1)  # a one-hot picks its row; no index, no sort
        h = torch.relu(self.norm(self.first(torch.cat([obs, described, action], dim=-1))))
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.last(h)
        return out


class _Block(nn.Module):
    def __init__(self, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.inner, self.outer = _linear(width, width, generator), _linear(width, width, generator)
        self.inner_norm, self.outer_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.inner_norm(self.inner(x)))
        out: Tensor = x + self.outer_norm(self.outer(h))
        return out


def _linear(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, device="meta")
    if generator is None:
        return layer
    make_room(layer)
    nn.init.orthogonal_(layer.weight, gain=math.sqrt(2), generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
