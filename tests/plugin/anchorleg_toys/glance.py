"""An encoder of pictures in one file: what a few filters see of the whole, frame by frame."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec

#: Filters of a frame.
FILTERS = 4


class Glance(nn.Module):
    """[B, C, H, W] or [B, T, C, H, W] → [B, T · FILTERS]."""

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        if len(spec.shape) < 3:
            raise ValueError(f"glance reads pictures, not {spec.shape}")
        self.frames = spec.shape[0] if spec.is_clip else 1
        self.features = self.frames * FILTERS
        numbers = int(torch.Size(spec.shape).numel()) // self.frames
        self.filters = nn.Parameter(torch.empty(numbers, FILTERS, device="meta" if generator is None else "cpu"))
        if generator is not None:
            with torch.no_grad():
                self.filters.normal_(0, numbers**-0.5, generator=generator)

    def forward(self, observed: Tensor) -> Tensor:
        """Evaluate it."""
        rows = observed.reshape(len(observed), self.frames, -1) / 255 - 0.5
        return torch.tanh(rows @ self.filters).flatten(1)
