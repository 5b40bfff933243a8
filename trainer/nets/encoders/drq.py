"""DrQ-v2's convolutions for pictures (Yarats et al. 2021, arXiv 2107.09645; facebookresearch/drqv2, `drqv2.py`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec
from trainer.nets.encoders import common

LAYERS = ((32, 3, 2), (32, 3, 1), (32, 3, 1), (32, 3, 1))
#: The brightness that is 0 to it.
GREY = 0.5


class Encoder(nn.Module):
    """[B, C, H, W] → [B, features], all that the last convolution sees: the layer that brings it down to few
    (`network.trunk`) is each net's own.
    """

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:  # noqa: ARG002
        super().__init__()
        common.check("drq", spec)
        self.spec = spec
        self.convs = common.convolutions(spec.shape[0], LAYERS)
        self.features = common.flat(self.convs, spec.shape)
        common.draw(self, generator, common.orthogonal)

    def forward(self, observed: Tensor) -> Tensor:
        seen: Tensor = self.convs(common.brightness(observed, self.spec) - GREY)
        return seen.flatten(1)
