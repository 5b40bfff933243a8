"""Clips read frame by frame: DrQ-v2's convolutions and its small layer for each, and then over time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec
from trainer.nets.encoders import common
from trainer.nets.encoders.drq import GREY, LAYERS

#: Numbers that are made of a frame: DrQ-v2's.
_OF_A_FRAME = 50
_FEATURES = 256


class Encoder(nn.Module):
    """[B, T, C, H, W] → [B, features of each camera]: one net for all frames and cameras.

    Over time a GRU, whose last state is what it makes; or the mean and a layer (`over_time` "mean"), in which order is
    lost.
    """

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        common.check("simple2dcnn", spec)
        self.spec = spec
        self.cameras = common.cameras_of(spec)
        width = network.encoder.features or _FEATURES
        self.features = self.cameras * width
        channels, *size = spec.frame
        self.convs = common.convolutions(channels // self.cameras, LAYERS)
        self.linear = nn.Linear(common.flat(self.convs, (channels // self.cameras, *size)), _OF_A_FRAME, device="meta")
        self.norm = nn.LayerNorm(_OF_A_FRAME, device="meta")
        self.over_time: nn.Module
        if network.encoder.over_time == "gru":
            self.over_time = nn.GRU(_OF_A_FRAME, width, batch_first=True, device="meta")
        else:
            self.over_time = nn.Linear(_OF_A_FRAME, width, device="meta")
        common.draw(self, generator, common.orthogonal)

    def forward(self, observed: Tensor) -> Tensor:
        rows, frames = observed.shape[:2]
        clips = common.each_camera(common.brightness(observed, self.spec) - GREY, self.cameras)
        seen = self.convs(clips.flatten(0, 1)).flatten(1)
        of_frames = torch.tanh(self.norm(self.linear(seen))).reshape(-1, frames, _OF_A_FRAME)
        if isinstance(self.over_time, nn.GRU):
            features: Tensor = self.over_time(of_frames)[0][:, -1]
        else:
            features = torch.relu(self.over_time(of_frames.mean(1)))
        return features.reshape(rows, self.features)
