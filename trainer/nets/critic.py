"""Critics made of plain layers, and the gradient of the smallest of several, which is all that the actor needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.nets.fused import Stacked
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


@torch.no_grad()
def gradient_of_smallest(
    stack: Stacked, layers: Sequence[Tensor], q: Tensor, output_gradient: Tensor, *, pick_rows: bool | None = None
) -> Tensor:
    """The derivative of the smallest Q of each row by the inputs, [B, inputs].

    `layers` are the values of `stack.forward`, `q` [n, B] what came of them, `output_gradient` [B, outputs] the
    derivative by the outputs. Automatic differentiation goes back through every critic with every row, and multiplies
    by zero the rows for which another critic is the smallest. Here each critic gets only the rows that are its own:
    with two critics half of the products backward. Rows summed in other groups differ in the last digits (1e-7).
    Picking rows would make a GPU wait for its host, so there every critic takes all rows and the rest is zeroed;
    `pick_rows` decides otherwise.
    """
    pick_rows = q.device.type == "cpu" if pick_rows is None else pick_rows
    owner = q.argmin(0)
    gradient = torch.zeros_like(layers[0][0])
    for net in range(q.shape[0]):
        mine = owner == net
        hidden = [values[net] for values in layers[1:-1]]
        if pick_rows:
            rows = mine.nonzero().squeeze(-1)
            gradient[rows] = stack.input_gradient(net, [values[rows] for values in hidden], output_gradient[rows])
        else:
            gradient += stack.input_gradient(net, hidden, output_gradient) * mine.unsqueeze(-1)
    return gradient
