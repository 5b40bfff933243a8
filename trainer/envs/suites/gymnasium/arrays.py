"""Gymnasium's spaces as the trainer's, and what goes through them.

An observation: numbers of any shape are one row, float32, called "state"; a picture, uint8 [H, W, C], [H, W] or
[stack, H, W], is "image", [C, H, W]; one of n is n numbers, of which one is 1. Of a `Dict` each part goes by its name,
of a `Tuple` by its number, of a part in a part by both with a dot between. An action: a `Box` with bounds, or one of n;
several choices at once are numbered through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from trainer.envs.given import EnvFaultError
from trainer.envs.spaces import IMAGE, STATE, Actions, ArraySpec, Box, Discrete, Obs
from trainer.errors import ConfigError

#: More of these and a policy's last layer, or a row of ones and zeros, is larger than all else.
MOST_CHOICES = 4096


class WrongArrayError(EnvFaultError):
    """An environment gave what its space does not say."""


@dataclass(frozen=True)
class ObsPart:
    """One array of an observation: `key` by which the trainer knows it, `path` to it, its own space."""

    key: str
    path: tuple[Any, ...]
    space: spaces.Space[Any]
    spec: ArraySpec

    def read(self, obs: Any) -> npt.NDArray[Any]:
        """A copy of it, as `spec` says. Errors: WrongArrayError."""
        value = obs
        for step in self.path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                raise WrongArrayError("given.key-missing", key=self.key) from None
        if isinstance(self.space, spaces.Discrete | spaces.MultiDiscrete):
            return self._choices(value)
        array = np.asarray(value)
        if array.dtype == np.float32 and array.shape == self.space.shape and self.spec.dtype == "float32":
            return self._finite(array.flatten())
        if array.shape != self.space.shape:
            raise WrongArrayError(
                "given.shape-of-space", name=self._name, found=str(array.shape), wanted=str(self.space.shape)
            )
        if self.spec.dtype == "uint8":
            if array.dtype != np.uint8:
                raise WrongArrayError("given.no-uint8", name=self._name, dtype=array.dtype)
            return np.array(_channels_first(array), order="C")
        if array.dtype.kind not in "fiub":
            raise WrongArrayError("given.no-number", name=self._name, dtype=array.dtype)
        with np.errstate(over="ignore"):
            row = np.array(array, np.float32).reshape(self.spec.shape)
        return self._finite(row)

    def _finite(self, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not np.isfinite(row).all():
            raise WrongArrayError("given.holds-nan", name=self._name)
        return row

    @property
    def _name(self) -> str:
        return f"the observation {self.key!r}"

    def _choices(self, value: Any) -> npt.NDArray[Any]:
        counts, starts = _counts(self.space)
        chosen = np.asarray(value)
        if chosen.dtype.kind not in "iub" or chosen.shape != self.space.shape:
            raise WrongArrayError("given.outside-space", name=self._name, value=repr(value), space=self.space)
        numbers = chosen.ravel().astype(np.int64) - starts
        if (numbers < 0).any() or (numbers >= counts).any():
            raise WrongArrayError("given.outside-space", name=self._name, value=repr(value), space=self.space)
        row = np.zeros(self.spec.shape, np.float32)
        row[np.cumsum(counts) - counts + numbers] = 1
        return row


class Observations:
    """All parts of an observation."""

    def __init__(self, space: spaces.Space[Any], env_id: str) -> None:
        """Errors: ConfigError, which names the part that cannot be read."""
        self.parts = _parts(space, (), env_id)
        keys = [part.key for part in self.parts]
        if not keys or len(set(keys)) != len(keys):
            raise ConfigError("gym.keys", id=env_id, keys=keys)

    @property
    def specs(self) -> dict[str, ArraySpec]:
        """By key."""
        return {part.key: part.spec for part in self.parts}

    def read(self, obs: Any) -> Obs:
        """Copies. Errors: WrongArrayError."""
        return {part.key: part.read(obs) for part in self.parts}


class ActionMap:
    """An action of the trainer's as the environment takes it."""

    def __init__(self, space: spaces.Space[Any], env_id: str) -> None:
        """Errors: ConfigError for an action that nothing here can choose."""
        self._space = space
        if isinstance(space, spaces.Box):
            if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
                raise ConfigError("gym.actions-unbounded", id=env_id, space=space, shape=str(space.shape))
            self.space: Box | Discrete = Box(math.prod(space.shape))
            self._low, self._high = space.low.astype(np.float64), space.high.astype(np.float64)
            self._rounds = np.issubdtype(space.dtype, np.integer)
            return
        if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise ConfigError("gym.actions-unknown", id=env_id, space=type(space).__name__)
        self._counts, self._starts = _counts(space)
        choices = math.prod(self._counts.tolist())
        if not 1 <= choices <= MOST_CHOICES:
            raise ConfigError("gym.too-many-choices", id=env_id, choices=choices, most=MOST_CHOICES)
        self.space = Discrete(choices)

    def to_env(self, action: Actions) -> Any:
        """[A] float32 in [-1, 1], or a number below n, as the environment's own space has it."""
        space = self._space
        if isinstance(space, spaces.Box):
            share = (np.asarray(action, np.float64).reshape(space.shape) + 1) / 2
            low, high = self._low, self._high
            value = np.minimum(np.maximum(low + share * (high - low), low), high)
            return (np.rint(value) if self._rounds else value).astype(space.dtype)
        if isinstance(space, spaces.Discrete):
            return np.int64(space.start + int(action))
        digits = np.array(np.unravel_index(int(action), self._counts.tolist()))
        return (digits + self._starts).reshape(space.shape).astype(space.dtype)


def _parts(space: spaces.Space[Any], path: tuple[Any, ...], env_id: str) -> Sequence[ObsPart]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner: Mapping[Any, Any] = (
            dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        )
        return [part for name, one in inner.items() for part in _parts(one, (*path, name), env_id)]
    name = ".".join(map(str, path))
    which = f"the part {name!r} of the observations" if name else "the observations"
    if _is_picture(space) and len(space.shape) == 3 and _channels_axis(space.shape) is None:
        raise ConfigError("gym.picture-axes", which=which, id=env_id, shape=str(space.shape))
    spec = _spec(space)
    if spec is None:
        raise ConfigError("gym.observations-unreadable", which=which, id=env_id, space=space)
    return [ObsPart(name or (IMAGE if spec.dtype == "uint8" else STATE), path, space, spec)]


def _spec(space: spaces.Space[Any]) -> ArraySpec | None:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        choices = int(_counts(space)[0].sum())
        return ArraySpec((choices,), "float32", 0.0, 1.0) if choices <= MOST_CHOICES else None
    if isinstance(space, spaces.MultiBinary):
        return ArraySpec((math.prod(space.shape),), "float32", 0.0, 1.0)
    if not isinstance(space, spaces.Box) or space.dtype.kind not in "fiub" or 0 in space.shape:
        return None
    if _is_picture(space):
        if len(space.shape) > 3:
            return None
        return ArraySpec(_channels_first(np.empty(space.shape, np.uint8)).shape, "uint8", 0.0, 255.0)
    with np.errstate(over="ignore"):
        low, high = (float(np.float32(bound)) for bound in (space.low.min(), space.high.max()))
    return ArraySpec((math.prod(space.shape),), "float32", low, high)


def _is_picture(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1


def _channels_axis(shape: tuple[int, ...]) -> int | None:
    """Of a picture of three axes the last one, as Gymnasium has it, or the first one, of a stack of frames, where that
    is the shortest by far; None: it may be either.
    """
    first, *others = shape
    if first >= min(others):
        return -1
    return 0 if 2 * first <= min(others) else None


def _channels_first(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[H, W], [H, W, C] or [stack, H, W] as [C, H, W]."""
    if picture.ndim == 2:
        return picture[np.newaxis]
    return picture if _channels_axis(picture.shape) == 0 else np.moveaxis(picture, -1, 0)


def _counts(space: spaces.Space[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(how many choices, the first one's number) of each part of a discrete space, [parts]."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], np.int64), np.array([space.start], np.int64)
    if isinstance(space, spaces.MultiBinary):
        count = np.full(math.prod(space.shape), 2, np.int64)
        return count, np.zeros_like(count)
    return space.nvec.ravel().astype(np.int64), space.start.ravel().astype(np.int64)
