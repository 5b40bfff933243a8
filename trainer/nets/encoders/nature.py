"""DQN's convolutions for pictures (Mnih et al. 2015, "Human-level control through deep reinforcement learning")."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec
from trainer.nets.encoders import common

_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
_FEATURES = 512


class Encoder(nn.Module):
    """[B, C, H, W] → [B, features]: three convolutions and a layer over all that they see."""

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        common.check("nature", spec)
        self.spec = spec
        self.features = network.encoder.features or _FEATURES
        self.convs = common.convolutions(spec.shape[0], _LAYERS)
        self.linear = nn.Linear(common.flat(self.convs, spec.shape), self.features, device="meta")
        common.draw(self, generator, common.orthogonal)

    def forward(self, observed: Tensor) -> Tensor:
        return torch.relu(self.linear(self.convs(common.brightness(observed, self.spec)).flatten(1)))
