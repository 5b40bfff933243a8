"""IMPALA's residual net for pictures (Espeholt et al. 2018, arXiv 1802.01561, figure 3, right)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec
from trainer.nets.encoders import common

_WIDTHS = (16, 32, 32)
_FEATURES = 256


class Encoder(nn.Module):
    """[B, C, H, W] → [B, features]: three sections that halve the picture, each with two residual blocks."""

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        common.check("impala", spec)
        self.spec = spec
        self.features = network.encoder.features or _FEATURES
        self.sections = nn.Sequential()
        channels = spec.shape[0]
        for width in _WIDTHS:
            self.sections.append(nn.Conv2d(channels, width, 3, padding=1, device="meta"))
            self.sections.append(nn.MaxPool2d(3, stride=2, padding=1))
            self.sections.append(_Residual(width)).append(_Residual(width))
            channels = width
        self.linear = nn.Linear(common.flat(self.sections, spec.shape), self.features, device="meta")
        common.draw(self, generator, common.uniform)

    def forward(self, observed: Tensor) -> Tensor:
        seen = torch.relu(self.sections(common.brightness(observed, self.spec)))
        return torch.relu(self.linear(seen.flatten(1)))


class _Residual(nn.Module):
    """[B, C, H, W] → the same shape."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, device="meta")
        self.second = nn.Conv2d(channels, channels, 3, padding=1, device="meta")

    def forward(self, seen: Tensor) -> Tensor:
        added: Tensor = self.second(torch.relu(self.first(torch.relu(seen))))
        return seen + added
