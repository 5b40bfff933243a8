"""The point masses as a camera would see them, and what reads such pictures: a suite and an encoder in one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from anchorleg_toys.points import Point, Points
from anchorleg_toys.settings import PicturedSettings, PointsSettings
from trainer.config.settings import Network
from trainer.envs.pictures import with_pictures
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, ArraySpec, Obs


class PicturedPoint(Point):
    """Shows a bright column where the mass is, in the colour of how far the episode has come; the goal is dark."""

    def __init__(self, goal: float, settings: PicturedSettings, keys: frozenset[str]) -> None:
        super().__init__(goal, settings.horizon, settings.pushes)
        self.size, self.keys = settings.image_size, keys

    def _obs(self) -> Obs:
        numbers = super()._obs()[STATE]
        picture = np.full((3, self.size, self.size), 100, np.uint8)
        columns = np.clip((np.array([self.goal, self.place]) / 2 + 0.5) * self.size, 0, self.size - 1).astype(int)
        picture[:, :, columns[0]] = 0
        picture[:, :, columns[1]] = np.array([[255], [255], [self.steps * 7 % 256]])
        shown = {IMAGE: picture, STATE: numbers[1:], PRIVILEGED: numbers}
        return {key: shown[key] for key in self.keys}


class Pictured(Points):
    """As `Points`, seen by `observation`; what it feels of itself is the time."""

    Settings: ClassVar = PicturedSettings

    def __init__(self, settings: PicturedSettings, seed: int, cache: Path | None) -> None:
        super().__init__(cast("PointsSettings", settings), seed, cache)
        self.settings = settings
        self.spaces = replace(self.spaces, obs=with_pictures(settings, ArraySpec((2,)), 1))

    def make(self, task: int) -> Point:
        """An environment."""
        if not self.settings.has_pictures:
            return super().make(task)
        return PicturedPoint(float(self.goals[task]), self.settings, frozenset(self.spaces.obs))


class Flat(nn.Module):
    """[B, *shape] → [B, features]: one linear layer over the means of columns."""

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        self.features = network.encoder.features or 8
        width = int(np.prod(spec.shape[:-2])) * spec.shape[-1]
        self.layer = nn.Linear(width, self.features, device="meta")
        if generator is not None:
            self.to_empty(device="cpu")
            with torch.no_grad():
                self.layer.weight.normal_(0, width**-0.5, generator=generator)
                self.layer.bias.zero_()

    def forward(self, observed: Tensor) -> Tensor:
        """Evaluate it."""
        return torch.tanh(self.layer((observed.float() / 255).mean(-2).flatten(1)))
