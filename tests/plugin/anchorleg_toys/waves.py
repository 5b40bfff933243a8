"""An encoder in one file: what an observation's numbers are, seen through waves of several lengths."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec

#: Waves a number.
WAVES = 3


class Waves(nn.Module):
    """[B, n] → [B, n · WAVES]: sines, whose lengths are learned."""

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        if len(spec.shape) != 1:
            raise ValueError(f"waves reads one row of numbers, not {spec.shape}")
        self.features = spec.shape[0] * WAVES
        self.lengths = nn.Parameter(torch.empty(spec.shape[0], WAVES, device="meta" if generator is None else "cpu"))
        if generator is not None:
            with torch.no_grad():
                self.lengths.uniform_(0.5, 4.0, generator=generator)

    def forward(self, observed: Tensor) -> Tensor:
        """Evaluate it."""
        return torch.sin(observed.unsqueeze(-1) * self.lengths).flatten(1)
