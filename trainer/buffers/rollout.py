"""Steps of the present policy: what an on-policy algorithm learns from, and then forgets.

Shapes: T steps of N environments, oldest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.spaces import F32, Spaces
from trainer.state import State

#: Beside observations, tasks and actions.
_NUMBERS = ("reward", "bootstrap", "terminated", "ended")


def fields_of(spaces: Spaces) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """What a step has: field → (its shape, its type)."""
    return {
        **{f"obs.{key}": (spec.shape, np.dtype(spec.dtype)) for key, spec in spaces.obs.items()},
        "task": ((), np.dtype(np.int64)),
        "action": (spaces.action.shape, np.dtype(spaces.action.dtype)),
        **dict.fromkeys(_NUMBERS, ((), np.dtype(np.float32))),
    }


class Rollout:
    """[T, N, …] in the host's memory. `steps`: how many of the T have come."""

    def __init__(self, spaces: Spaces, steps: int, num_envs: int) -> None:
        self.capacity, self.num_envs = steps, num_envs
        self.steps = 0
        self.fields: dict[str, npt.NDArray[Any]] = {
            name: np.zeros((steps, num_envs, *shape), dtype) for name, (shape, dtype) in fields_of(spaces).items()
        }

    @property
    def full(self) -> bool:
        """Whether all of its steps have come."""
        return self.steps == self.capacity

    def add(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """One step of all environments: each field [N, …]. `bootstrap`: the value of what an episode that was cut here
        would have gone on with; `ended`: 1 where it was cut or is over.
        """
        for name, value in values.items():
            self.fields[name][self.steps] = value
        self.steps += 1

    def in_a_row(self, name: str) -> npt.NDArray[Any]:
        """A field as [T · N, …], step by step."""
        field = self.fields[name]
        row: npt.NDArray[Any] = field.reshape(-1, *field.shape[2:])
        return row

    def advantages(self, value: F32, last_value: F32, gamma: float, gae_lambda: float) -> F32:
        """[T, N], where each step is worth `value` [T, N] and what follows the last one `last_value` [N].

        Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438). At a cut what would have followed is
        worth `bootstrap`, at an end nothing; neither looks into the next episode (Pardo et al. 2018, arXiv 1712.00378).
        """
        reward, bootstrap, terminated, ended = (self.fields[name] for name in _NUMBERS)
        following = np.concatenate([value[1:], last_value[None]])
        following = np.where(ended > 0, bootstrap * (1 - terminated), following)
        errors = reward + np.float32(gamma) * following - value
        kept = np.float32(gamma * gae_lambda) * (1 - ended)
        found: F32 = np.empty_like(errors)
        ahead = np.zeros_like(last_value)
        for step in reversed(range(self.capacity)):
            ahead = errors[step] + kept[step] * ahead
            found[step] = ahead
        return found

    def clear(self) -> None:
        """Begin anew."""
        self.steps = 0

    def state(self) -> State:
        """Copies of what has come."""
        return State({name: field[: self.steps].copy() for name, field in self.fields.items()}, {"steps": self.steps})

    def load(self, state: State) -> None:
        """Go on from there; of another number of environments nothing is kept."""
        self.clear()
        if state.tensors["task"].shape[1] != self.num_envs:
            return
        self.steps = state.numbers["steps"]
        for name, field in self.fields.items():
            field[: self.steps] = state.tensors[name]
