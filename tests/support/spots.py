"""A world of two spots on a black floor, seen from above: a red hand that the action moves, a green goal. A suite with
pictures that takes no time, and an encoder that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.config.pictures import Observation, PictureSettings
from trainer.envs.pictures import with_pictures
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, ArraySpec, Box, Spaces
from trainer.envs.suite import Outcome, StepperUnavailableError
from trainer.state import State

#: A step, how near is there, and how wide a spot is, in sides of the floor (which is 2 wide).
STEP, NEAR, WIDE = 0.2, 0.15, 0.25


class SpotSettings(PictureSettings):
    """Two spots."""

    KNOWN_CAMERAS: ClassVar[tuple[str, ...]] = ("above", "aside")
    USUAL_CAMERAS: ClassVar[tuple[str, ...]] = ("above",)
    tasks: tuple[str, ...] = ("touch",)
    horizon: int = 20
    observation: Observation = "state"


class Spot:
    def __init__(self, settings: SpotSettings) -> None:
        self.settings = settings
        self.places = np.zeros(4, np.float32)  # hand, goal

    def reset(self, start: int, seed: int) -> Any:
        self.places = np.random.default_rng(seed).uniform(-0.8, 0.8, 4).astype(np.float32)
        return self._obs()

    def step(self, action: Any) -> Outcome:
        self.places[:2] = np.clip(self.places[:2] + STEP * np.clip(action, -1, 1), -1, 1)
        away = float(np.linalg.norm(self.places[2:] - self.places[:2]))
        return Outcome(self._obs(), -away, terminated=False, truncated=False, success=away < NEAR)

    def snapshot(self) -> State:
        return State({"places": self.places.copy()}, {})

    def restore(self, state: State) -> None:
        self.places = np.array(state.tensors["places"])

    def close(self) -> None:
        pass

    def picture(self, camera: str) -> Any:
        size = self.settings.image_size
        line = np.linspace(-1, 1, size, dtype=np.float32)
        drawn = np.zeros((3, size, size), np.float32)
        turned = self.places if camera == "above" else self.places[[1, 0, 3, 2]]
        for colour, (x, y) in enumerate(turned.reshape(2, 2)):
            drawn[colour] = np.exp(-((line[None] - x) ** 2 + (line[:, None] - y) ** 2) / (2 * (WIDE / 2) ** 2))
        return (255 * drawn).astype(np.uint8)

    def _obs(self) -> Any:
        whole = self.places.copy()
        if not self.settings.has_pictures:
            return {STATE: whole}
        seen = {IMAGE: np.concatenate([self.picture(camera) for camera in self.settings.seen_by])}
        if self.settings.observation != "cameras":
            seen[STATE] = whole[:2]
        if self.settings.critic_sees == "state":
            seen[PRIVILEGED] = whole
        return seen


class Spots:
    Settings: ClassVar = SpotSettings
    starts = None
    bounds = None
    tells_success = True
    versions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, settings: SpotSettings, seed: int, cache: Path | None) -> None:
        self.settings = settings
        self.spaces = Spaces(with_pictures(settings, ArraySpec((4,)), 2), Box(2), settings.tasks, settings.horizon)

    def starts_near(self, task: int, obs: Any) -> Sequence[int]:
        return ()

    def describe(self) -> Mapping[str, str]:
        return {"settings": self.settings.model_dump_json()}

    def make(self, task: int) -> Spot:
        return Spot(self.settings)

    def stepped_natively(self, choice: str) -> frozenset[int]:
        return frozenset()

    def stepper(self, *args: Any, **more: Any) -> Any:
        raise StepperUnavailableError("spots are stepped by Python alone")

    def script(self, task: int) -> Any:
        """Straight to the goal, by the whole state."""
        return lambda whole: np.clip((whole[2:] - whole[:2]) / STEP, -1, 1).astype(np.float32)


class Eye(nn.Module):
    """Pictures of 16 pixels or more, and clips by their mean over time: two convolutions and a layer."""

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        super().__init__()
        channels = spec.shape[-3]
        self.features = 32
        self.convs = nn.Sequential(
            nn.Conv2d(channels, 8, 5, 2, device="meta"), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, device="meta"), nn.ReLU()
        )
        size = self.convs(torch.zeros(1, channels, *spec.shape[-2:], device="meta")).numel()
        self.linear = nn.Linear(size, self.features, device="meta")
        if generator is not None:
            self.to_empty(device="cpu")
            with torch.no_grad():
                for parameter in self.parameters():
                    fan = parameter[0].numel() if parameter.dim() > 1 else 1e6
                    parameter.normal_(0, (2 / fan) ** 0.5, generator=generator)

    def forward(self, observed: Tensor) -> Tensor:
        frames = observed.float() / 255
        if frames.dim() == 5:
            frames = frames.mean(1)
        return self.linear(self.convs(frames).flatten(1))
