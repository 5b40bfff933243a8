"""Plain multi-layer perceptrons, initialised from an explicit generator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with ReLU between them: [B, inputs] → [B, outputs].

    Weights and biases are uniform in ±1/sqrt(fan-in), torch's own default for `nn.Linear`, drawn from `generator`
    instead of the global stream. Without one it stays on the meta device: shapes, and neither numbers nor memory.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, generator: torch.Generator | None) -> None:
        super().__init__()
        widths = [inputs, *hidden, outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b, device="meta") for a, b in pairwise(widths))
        if generator is None:
            return
        self.to_empty(device="cpu")
        with torch.no_grad():
            for layer, fan_in in zip(self.layers, widths, strict=False):
                for parameter in layer.parameters():
                    parameter.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the net."""
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        out: Tensor = self.layers[-1](x)
        return out
