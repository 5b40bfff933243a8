"""An encoder that keeps running statistics of what it reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec


class Normed(nn.Module):
    """[B, C, H, W] → [B, C]: means, normalised over the batch."""

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        self.features = spec.shape[0]
        self.norm = nn.BatchNorm2d(self.features, device="meta" if generator is None else "cpu")

    def forward(self, observed: Tensor) -> Tensor:
        seen: Tensor = self.norm(observed.float() / 255)
        return seen.mean((2, 3))
