"""The regularised critic: residual blocks with layer normalisation, and a learned embedding in place of the one-hot.

BroNet of Nauman et al. 2024 (BRO, arXiv 2405.16158), as Nauman et al. 2025 (BRC, arXiv 2505.23150) use it for many
tasks at once: Linear-LayerNorm-ReLU, then blocks x + LayerNorm(Linear(ReLU(LayerNorm(Linear(x))))), then the outputs.
Weights are orthogonal with gain √2, biases zero. Unlike BRC's, whose actor reads the critic's embedding, each critic
here has an embedding of its own and the actor keeps the one-hot: a published actor then needs nothing of a critic.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from trainer.nets.room import make_room

#: Numbers that a task is described by (BRC).
EMBEDDING = 32


class ResidualCritic(nn.Module):
    """`inputs` numbers x = [obs, one-hot task of K] and `actions` → [B, outputs], with `blocks` blocks `width` wide.

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
        """Evaluate the net."""
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
