"""Plain multi-layer perceptrons, initialised from an explicit generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from trainer.nets.room import make_room

#: What stands between the layers, by the name that a config has for it.
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class MLP(nn.Module):
    """Linear layers with an activation between them: [B, inputs] → [B, outputs].

    Weights and biases are uniform in ±1/sqrt(fan-in), torch's own default for `nn.Linear`, drawn from `generator`
    instead of the global stream. Without one it stays on the meta device: shapes, and neither numbers nor memory.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        generator: torch.Generator | None,
        *,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        widths = [inputs, *hidden, outputs]
        self.activation = ACTIVATIONS[activation]
        self.layers = nn.ModuleList(nn.Linear(a, b, device="meta") for a, b in pairwise(widths))
        if generator is None:
            return
        make_room(self)
        with torch.no_grad():
            for layer, fan_in in zip(self.layers, widths, strict=False):
                for parameter in layer.parameters():
                    parameter.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the net."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        out: Tensor = self.layers[-1](x)
        return out


def orthogonal(net: MLP, generator: torch.Generator, last: float, gain: float = math.sqrt(2)) -> None:
    """Draw its weights anew: orthogonal, of `gain`, in the last layer of gain `last`; no biases.

    What PPO's implementations have in common (Huang et al. 2022, "The 37 implementation details of PPO", detail 2).
    """
    with torch.no_grad():
        for layer in cast("list[nn.Linear]", list(net.layers)):
            nn.init.orthogonal_(layer.weight, last if layer is net.layers[-1] else gain, generator=generator)
            layer.bias.zero_()
