"""Critics made of plain layers, and the slope of the smaller of several of them, which is all that the actor needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from trainer.nets.mlp import MLP


class Critic(MLP):
    """Q(s, a) of `inputs` numbers x = [obs, one-hot task] and `actions`: [B, inputs], [B, actions] → [B, 1].

    `heads` = K: a head a task, after a body that all share; a row takes the one that its one-hot task (the last K
    numbers of x) names. All heads are computed for all rows: K columns more in the cheapest of the products, and no
    loop over tasks (McLean et al. 2025; rainx0r/mtrl, nn/multi_head.py). `heads` = 1: one for all.
    """

    def __init__(
        self, inputs: int, actions: int, hidden: Sequence[int], generator: torch.Generator, *, heads: int = 1
    ) -> None:
        super().__init__(inputs + actions, hidden, heads, generator)
        self.heads = heads

    def forward(self, x: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]
        """Evaluate the net."""
        return self.chosen(super().forward(torch.cat([x, action], dim=-1)), x)

    def chosen(self, outputs: Tensor, x: Tensor) -> Tensor:
        """[B, heads] → [B, 1]: the output of each row's own task."""
        return outputs if self.heads == 1 else (outputs * x[:, -self.heads :]).sum(-1, keepdim=True)


@torch.no_grad()
def slope_of_smallest(
    critics: Sequence[Critic], x: Tensor, action: Tensor, *, pick_rows: bool | None = None
) -> tuple[Tensor, Tensor]:
    """The smallest Q of each row over `critics` (plain ones): (its value [B], its derivative by the action [B, A]).

    Automatic differentiation goes back through every critic with every row, and multiplies by zero the rows for which
    another critic is the smallest. Here each critic gets only the rows that are its own: with two critics half of the
    products backward, 7-8 % of a whole update. Rows summed in other groups differ in the last digits (1e-7).
    Picking rows would make a GPU wait for its host, so there every critic takes all rows and the rest is zeroed;
    `pick_rows` decides otherwise.
    """
    pick_rows = x.device.type == "cpu" if pick_rows is None else pick_rows
    both = torch.cat([x, action], dim=-1)
    values, hidden = [], []
    for critic in critics:
        trace = [both]
        for layer in critic.layers[:-1]:
            trace.append(torch.relu_(layer(trace[-1])))
        hidden.append(trace[1:])
        values.append(critic.chosen(critic.layers[-1](trace[-1]), x).squeeze(-1))
    smallest, owner = torch.stack(values).min(0)
    slope = torch.zeros_like(action)
    for index, critic in enumerate(critics):
        mine = owner == index
        if pick_rows:
            rows = mine.nonzero().squeeze(-1)
            slope[rows] = _back(critic, [layer[rows] for layer in hidden[index]], x[rows])[:, -action.shape[1] :]
        else:
            slope += _back(critic, hidden[index], x)[:, -action.shape[1] :] * mine.unsqueeze(-1)
    return smallest, slope


def _back(critic: Critic, hidden: list[Tensor], x: Tensor) -> Tensor:
    """The derivative of a critic's value by its inputs, [rows, inputs]; `hidden` are the layers' values after ReLU."""
    *inner, last = (cast("nn.Linear", layer) for layer in critic.layers)
    start = x.new_ones(x.shape[0], 1) if critic.heads == 1 else x[:, -critic.heads :]
    gradient = start @ last.weight
    for layer, values in zip(reversed(inner), reversed(hidden), strict=True):
        gradient = gradient.mul_(values > 0) @ layer.weight
    return gradient
