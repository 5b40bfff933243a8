"""What brings many features down to a few before plain layers: DrQ-v2's (Yarats et al. 2021, arXiv 2107.09645)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.nets.mlp import MLP


class Trunk(nn.Module):
    """[B, inputs] → [B, outputs] between -1 and 1: linear, layer normalisation, tanh.

    Without a generator it has shapes and no numbers, as an `MLP`.
    """

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.linear = MLP(inputs, (), outputs, generator)
        self.norm = nn.LayerNorm(outputs, device="meta" if generator is None else "cpu")

    def forward(self, features: Tensor) -> Tensor:
        """Evaluate it."""
        return torch.tanh(self.norm(self.linear(features)))
