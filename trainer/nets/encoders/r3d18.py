"""R3D-18, a residual net whose convolutions reach over time too (Tran et al. 2018, arXiv 1711.11248).

Tensors have the names of torchvision's `r3d_18` (torchvision/models/video/resnet.py, BSD-3-Clause), so that its files
are read as they are; its `fc` is not part of this.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from trainer.config.network import RGB, Network
from trainer.envs.spaces import ArraySpec
from trainer.nets.encoders import common

#: Of brightness in [0, 1], by colour: what the published weights were trained with (torchvision's R3D_18_Weights).
MEAN, DEVIATION = (0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989)


class Encoder(nn.Module):
    """[B, T, C, H, W] → [B, features of each camera]: one net for all cameras.

    Its batch normalisation never learns from a batch: what it divides by are the file's numbers, in training too.
    """

    WIDTHS: ClassVar[tuple[int, ...]] = (64, 128, 256, 512)

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:  # noqa: ARG002
        super().__init__()
        common.check("r3d18", spec)
        self.spec = spec
        self.cameras = common.cameras_of(spec)
        stem, *_, last = self.WIDTHS
        self.features = self.cameras * last
        self.stem = nn.Sequential(
            nn.Conv3d(RGB, stem, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False, device="meta"),
            nn.BatchNorm3d(stem, device="meta"),
            nn.ReLU(inplace=True),
        )
        before = stem
        for number, width in enumerate(self.WIDTHS, start=1):
            layer = nn.Sequential(_Block(before, width, 1 if number == 1 else 2), _Block(width, width, 1))
            self.add_module(f"layer{number}", layer)
            before = width
        common.draw(self, generator, _kaiming)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """As every module; but its batch normalisation stays as it is."""
        super().train(mode)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm3d):
                layer.eval()
        return self

    def forward(self, observed: Tensor) -> Tensor:
        colours = observed.new_tensor(MEAN, dtype=torch.float32), observed.new_tensor(DEVIATION, dtype=torch.float32)
        mean, deviation = (colour.view(RGB, 1, 1) for colour in colours)
        clips = common.each_camera(common.brightness(observed, self.spec), self.cameras)
        seen: Tensor = self.stem(((clips - mean) / deviation).transpose(1, 2))
        for number in range(1, len(self.WIDTHS) + 1):
            seen = getattr(self, f"layer{number}")(seen)
        # As adaptive pooling, which has no deterministic way back on a GPU.
        return seen.mean((2, 3, 4)).reshape(len(observed), self.features)


class _Block(nn.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _normalised(inputs, outputs, 3, stride).append(nn.ReLU(inplace=True))
        self.conv2 = _normalised(outputs, outputs, 3, 1)
        self.downsample = None if inputs == outputs and stride == 1 else _normalised(inputs, outputs, 1, stride)

    def forward(self, seen: Tensor) -> Tensor:
        past = seen if self.downsample is None else self.downsample(seen)
        return torch.relu(self.conv2(self.conv1(seen)) + past)


def _normalised(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, kernel, stride, kernel // 2, bias=False, device="meta"),
        nn.BatchNorm3d(outputs, device="meta"),
    )


def _kaiming(layer: nn.Module, generator: torch.Generator) -> None:
    """As torchvision draws it."""
    if isinstance(layer, nn.Conv3d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
