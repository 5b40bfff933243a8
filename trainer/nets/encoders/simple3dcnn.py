"""Clips read by four convolutions over space and time together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec
from trainer.nets.encoders import common

#: Channels and strides (time, height, width) of each convolution: the first looks at every frame.
_LAYERS = ((32, (1, 2, 2)), (64, (2, 2, 2)), (128, (2, 2, 2)), (128, (2, 2, 2)))
_CHANNELS_A_GROUP = 16
_FEATURES = 256


class Encoder(nn.Module):
    """[B, T, C, H, W] → [B, features of each camera]: one net for all cameras.

    The last convolution's mean over time goes into one layer; over space there is none, as a policy asks where things
    are.
    """

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        common.check("simple3dcnn", spec)
        self.spec = spec
        self.cameras = common.cameras_of(spec)
        width = network.encoder.features or _FEATURES
        self.features = self.cameras * width
        self.convs = nn.Sequential()
        channels = one = spec.frame[0] // self.cameras
        for out, stride in _LAYERS:
            self.convs.append(nn.Conv3d(channels, out, 3, stride, padding=1, bias=False, device="meta"))
            self.convs.append(nn.GroupNorm(out // _CHANNELS_A_GROUP, out, device="meta")).append(nn.ReLU())
            channels = out
        frame = (one, 1, *spec.frame[1:])
        self.linear = nn.Linear(common.flat(self.convs, frame), width, device="meta")
        common.draw(self, generator, common.orthogonal)

    def forward(self, observed: Tensor) -> Tensor:
        clips = common.each_camera(common.brightness(observed, self.spec), self.cameras).transpose(1, 2)
        seen = self.convs(clips).mean(2).flatten(1)
        return torch.relu(self.linear(seen)).reshape(len(observed), self.features)
