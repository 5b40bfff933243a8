"""Critics made of plain layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.nets.mlp import MLP


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
        """Evaluate the net."""
        outputs = super().forward(torch.cat([x, action], dim=-1))
        return (outputs * self.chosen(x)).sum(-1, keepdim=True)

    def chosen(self, x: Tensor) -> Tensor:
        """[B, heads]: 1 for the output of each row's own task, else 0."""
        return x.new_ones(x.shape[0], 1) if self.heads == 1 else x[:, -self.heads :]
