"""What goes into a policy and what comes out of it: shapes and types, as arrays have them and as JSON.

Shapes: N environments, K tasks, A numbers of an action.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Key → [N, *shape] of the key's `ArraySpec`. Numbers of a state are "state", pictures "image", and so on.
Obs = Mapping[str, npt.NDArray[Any]]
#: [N, A] float32 in [-1, 1] for `Box`, [N] int64 for `Discrete`.
Actions = npt.NDArray[Any]

#: The key of an observation that is one row of numbers; of one that is pictures; of the whole state, for critics alone.
STATE, IMAGE, PRIVILEGED = "state", "image", "privileged"
#: Where every number of a `Box` lies.
ACTION_LOW, ACTION_HIGH = -1.0, 1.0


@dataclass(frozen=True)
class ArraySpec:
    """One observation: `shape` without N, every number in [`low`, `high`].

    `stack`: it is the last so many frames of an episode, oldest first, `stride` steps apart; what would lie before the
    episode is its first frame. A clip has an axis of time, [stack, C, H, W]; else the frames' channels lie behind each
    other, [stack · C, H, W]. An environment gives the newest `frame` alone. `privileged`: for critics, not for the
    policy.
    """

    shape: tuple[int, ...]
    dtype: Literal["float32", "uint8"] = "float32"
    low: float = -np.inf
    high: float = np.inf
    stack: int = 1
    stride: int = 1
    privileged: bool = False

    @property
    def is_clip(self) -> bool:
        """Whether it has an axis of time."""
        return len(self.shape) == 4

    @property
    def frame(self) -> tuple[int, ...]:
        """The shape of what one step brings."""
        if self.stack == 1:
            return self.shape
        return self.shape[1:] if self.is_clip else (self.shape[0] // self.stack, *self.shape[1:])

    @property
    def reach(self) -> int:
        """Frames from the oldest to the newest one, both counted, with those between that are left out."""
        return (self.stack - 1) * self.stride + 1

    def as_json(self) -> dict[str, Any]:
        """Numbers, strings and lists; an infinite bound is null, and what is usual is left out."""
        more = {"stack": (self.stack, 1), "stride": (self.stride, 1), "privileged": (self.privileged, False)}
        return {
            "shape": list(self.shape),
            "dtype": self.dtype,
            "low": _finite(self.low),
            "high": _finite(self.high),
            **{name: value for name, (value, usual) in more.items() if value != usual},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` was made of. Errors: KeyError, TypeError, ValueError for anything else."""
        made = cls(
            tuple(int(size) for size in value["shape"]),
            value["dtype"],
            -np.inf if value["low"] is None else float(value["low"]),
            np.inf if value["high"] is None else float(value["high"]),
            int(value.get("stack", 1)),
            int(value.get("stride", 1)),
            bool(value.get("privileged", False)),
        )
        if not made.shape:
            raise ValueError("an observation must have at least one number")
        whole = made.stack if made.is_clip else made.shape[0] / max(1, made.stack)
        if made.stack < 1 or made.stride < 1 or (made.stack > 1 and (whole != int(whole) or len(made.shape) < 3)):
            raise ValueError(f"{made.shape} is not a stack of {made.stack} frames, {made.stride} steps apart")
        return made


@dataclass(frozen=True)
class Box:
    """An action of `size` numbers in [-1, 1]; the suite scales them to its own."""

    size: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one action."""
        return (self.size,)

    @property
    def dtype(self) -> type[np.generic]:
        """Of its numbers."""
        return np.float32


@dataclass(frozen=True)
class Discrete:
    """An action that is one of `n`."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one action."""
        return ()

    @property
    def dtype(self) -> type[np.generic]:
        """Of its number."""
        return np.int64


@dataclass(frozen=True)
class Spaces:
    """What a policy is given and gives: observations by key, the action, K `tasks` in index order (one where there is
    no choice), and `horizon`, the steps after which an episode is truncated.
    """

    obs: Mapping[str, ArraySpec]
    action: Box | Discrete
    tasks: tuple[str, ...]
    horizon: int

    def as_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts; an infinite bound is null."""
        action = {"box": self.action.size} if isinstance(self.action, Box) else {"discrete": self.action.n}
        obs = {key: spec.as_json() for key, spec in self.obs.items()}
        return {"obs": obs, "action": action, "tasks": list(self.tasks), "horizon": self.horizon}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` was made of. Errors: KeyError, TypeError, ValueError for anything else."""
        if not isinstance(value["obs"], Mapping) or not isinstance(value["action"], Mapping):
            raise TypeError("observations and the action must be objects")
        obs = {key: ArraySpec.from_json(spec) for key, spec in value["obs"].items()}
        ((kind, size),) = value["action"].items()
        kinds: dict[str, type[Box | Discrete]] = {"box": Box, "discrete": Discrete}
        action = kinds[kind](int(size))
        return cls(obs, action, tuple(value["tasks"]), int(value["horizon"]))

    @property
    def digest(self) -> str:
        """sha256 (hex) of what policies and experience must agree about: observations, action and tasks."""
        value = self.as_json()
        del value["horizon"]
        return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @property
    def words(self) -> str:
        """What nets are built for: `state [39] float32 for 4 numbers`."""
        seen = [f"{key} {list(spec.shape)} {spec.dtype}" for key, spec in sorted(self.obs.items())]
        action = f"{self.action.size} numbers" if isinstance(self.action, Box) else f"one of {self.action.n} choices"
        return f"{', '.join(seen)} for {action}"

    def zeros(self, *rows: int) -> dict[str, npt.NDArray[Any]]:
        """Observations [*rows, *shape] of nothing."""
        return {key: np.zeros((*rows, *spec.shape), spec.dtype) for key, spec in self.obs.items()}

    @property
    def of_policy(self) -> Spaces:
        """Without what critics alone see."""
        return replace(self, obs={key: spec for key, spec in self.obs.items() if not spec.privileged})

    def no_frames(self, *rows: int) -> dict[str, npt.NDArray[Any]]:
        """Frames [*rows, *frame] of nothing, as environments give them."""
        return {key: np.zeros((*rows, *spec.frame), spec.dtype) for key, spec in self.obs.items()}

    def no_actions(self, rows: int) -> Actions:
        """[rows] actions, all 0."""
        return np.zeros((rows, *self.action.shape), self.action.dtype)


def drawn_actions(rng: np.random.Generator, action: Box | Discrete, rows: int) -> Actions:
    """[rows] actions, each as likely as the others."""
    if isinstance(action, Box):
        return rng.uniform(ACTION_LOW, ACTION_HIGH, (rows, action.size)).astype(np.float32)
    return rng.integers(action.n, size=rows)


def picked(obs: Obs, rows: Any) -> dict[str, npt.NDArray[Any]]:
    """`obs` of some rows: any index that NumPy takes."""
    return {key: array[rows] for key, array in obs.items()}


def go_on_from(obs: Obs, left: Obs) -> Bools:
    """[N] whether each environment is in what it was `left` in; where `left` has fewer rows, the others are not."""
    first = next(iter(obs.values()))
    same = np.zeros(len(first), np.bool_)
    kept = min(len(first), len(next(iter(left.values()))))
    same[:kept] = True
    for key, array in obs.items():
        same[:kept] &= (array[:kept] == left[key][:kept]).reshape(kept, -1).all(1)
    return same


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None
