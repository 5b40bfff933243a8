"""What a policy sees of an environment of Gymnasium's: what it gives, what it renders, or both."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.config.suites import Gymnasium
from trainer.envs.pictures import COLOURS, picture_spec
from trainer.envs.spaces import F64, IMAGE, PRIVILEGED, ArraySpec, Obs
from trainer.envs.suites.gymnasium.arrays import Observations
from trainer.errors import ConfigError


def resized(picture: npt.NDArray[Any], height: int, width: int) -> npt.NDArray[np.uint8]:
    """[H, W, C] uint8 as [height, width, C]: every pixel is the mean of the area that it covers, halves rounded up. The
    sums are whole numbers that float64 holds, so on any machine the order in which they are added does not matter.
    """
    had = picture.shape[:2]
    if had == (height, width):
        return np.array(picture, np.uint8)
    rows = np.tensordot(_covered(had[0], height), picture.astype(np.float64), 1)
    sums = np.tensordot(rows, _covered(had[1], width), (1, 1)).swapaxes(1, 2)
    area = had[0] * had[1]
    small: npt.NDArray[np.uint8] = ((2 * sums + area) // (2 * area)).astype(np.uint8)
    return small


@lru_cache(maxsize=16)
def _covered(pixels: int, wanted: int) -> F64:
    """[wanted, pixels] how much of each old pixel a new one covers, in parts of 1/wanted of an old one: whole numbers,
    `pixels` together.
    """
    begins, ends = np.arange(wanted) * pixels, np.arange(1, wanted + 1) * pixels
    old = np.arange(pixels) * wanted
    covered: F64 = np.minimum(ends[:, None], old + wanted) - np.maximum(begins[:, None], old)
    return np.maximum(covered, 0).astype(np.float64)


#: Pixels of a side of what is rendered, where nobody says.
USUAL_SIZE = 64


class Sight:
    """`given` as `settings` want it seen. Errors: ConfigError where they want what there is not."""

    def __init__(self, settings: Gymnasium, given: Observations) -> None:
        self._given = given
        pictures = {key: spec for key, spec in given.specs.items() if len(spec.shape) == 3}
        numbers = {key: spec for key, spec in given.specs.items() if key not in pictures}
        gives_them = settings.observation in {"state", "clips"} and bool(pictures)
        _check(settings, pictures, numbers)
        #: Whether a picture is rendered at each step.
        self.renders = settings.has_pictures and not gives_them
        self._size = settings.image_size or USUAL_SIZE
        #: Key → [C, height, width] of one frame of a given picture; and the keys of all else that is seen.
        self._frames: dict[str, tuple[int, ...]] = {}
        self._others = {} if settings.observation == "cameras" else numbers
        self.specs: dict[str, ArraySpec] = dict(self._others)
        if settings.observation != "cameras":
            for key, spec in pictures.items():
                channels, height, width = spec.shape
                size = (settings.image_size or height, settings.image_size or width)
                self._frames[key] = (channels, *size)
                self.specs[key] = picture_spec(settings, channels, *size)
        if self.renders:
            self.specs[IMAGE] = picture_spec(settings, COLOURS, self._size, self._size)
        self._privileged = list(numbers) if settings.critic_sees == "state" else []
        if self._privileged:
            low, high = min(spec.low for spec in numbers.values()), max(spec.high for spec in numbers.values())
            together = sum(spec.shape[0] for spec in numbers.values())
            self.specs[PRIVILEGED] = ArraySpec((together,), "float32", low, high, privileged=True)

    def of(self, obs: Any, render: Callable[[], npt.NDArray[Any]]) -> Obs:
        """One frame of it: copies. `render` gives [H, W, 3]. Errors: WrongArrayError; those of `render`."""
        given = self._given.read(obs)
        seen = {key: given[key] for key in self._others}
        for key, (_, *size) in self._frames.items():
            picture = given[key]
            if list(picture.shape[1:]) != size:
                picture = _first(resized(np.moveaxis(picture, 0, -1), *size))
            seen[key] = picture
        if self.renders:
            seen[IMAGE] = _first(resized(render(), self._size, self._size))
        if self._privileged:
            seen[PRIVILEGED] = np.concatenate([given[key] for key in self._privileged])
        return seen


def _check(settings: Gymnasium, pictures: dict[str, ArraySpec], numbers: dict[str, ArraySpec]) -> None:
    if settings.observation in {"cameras", "both"} and IMAGE in pictures:
        raise ConfigError("gym.pictures-itself", observation=settings.observation, id=settings.id)
    if not settings.has_pictures and not pictures:
        for name in ("image_size", "frame_stack", "frame_stride", "critic_sees"):
            if getattr(settings, name) != type(settings).model_fields[name].get_default():
                raise ConfigError("gym.no-pictures", name=name, id=settings.id)
    if settings.critic_sees == "state" and not numbers:
        raise ConfigError("gym.no-state", id=settings.id)


def _first(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[H, W, C] as [C, H, W]."""
    return np.ascontiguousarray(np.moveaxis(picture, -1, 0))
