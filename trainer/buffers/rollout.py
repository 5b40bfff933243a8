"""Steps of the present policy: what an on-policy algorithm learns from, and then forgets.

Shapes: T steps of N environments, oldest first; R frames from the oldest to the newest one that is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.frames import stacked
from trainer.envs.spaces import F32, Bools, Spaces
from trainer.state import State

#: Beside observations, tasks and actions.
_NUMBERS = ("reward", "bootstrap", "terminated", "ended")


def fields_of(spaces: Spaces) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """What a step has: field → (its shape, its type). Of stacks and clips the newest frame."""
    return {
        **{f"obs.{key}": (spec.frame, np.dtype(spec.dtype)) for key, spec in spaces.obs.items()},
        "task": ((), np.dtype(np.int64)),
        "action": (spaces.action.shape, np.dtype(spaces.action.dtype)),
        **dict.fromkeys(_NUMBERS, ((), np.dtype(np.float32))),
    }


class Rollout:
    """[T, N, …] in the host's memory. `steps`: how many of the T have come.

    Frames of stacks and clips are kept once: those of the T steps, and the R - 1 that were seen before.
    """

    def __init__(self, spaces: Spaces, steps: int, num_envs: int) -> None:
        self.capacity, self.num_envs = steps, num_envs
        self.steps = 0
        self._specs = spaces.obs
        #: Key → [R - 1 + T, N, *frame].
        self._frames = {
            key: np.zeros((spec.reach - 1 + steps, num_envs, *spec.frame), spec.dtype)
            for key, spec in spaces.obs.items()
            if spec.stack > 1
        }
        self._before = max((spec.reach - 1 for spec in spaces.obs.values()), default=0)
        #: A step from which on the frames of each step are of its episode; `-_before`: not in this rollout.
        self._begun = np.zeros((steps, num_envs), np.int32)
        self.fields: dict[str, npt.NDArray[Any]] = {
            name: np.zeros((steps, num_envs, *shape), dtype)
            for name, (shape, dtype) in fields_of(spaces).items()
            if name.removeprefix("obs.") not in self._frames
        }

    @property
    def full(self) -> bool:
        """Whether all of its steps have come."""
        return self.steps == self.capacity

    def add(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """One step of all environments: each field [N, …]. `bootstrap`: the value of what an episode that was cut here
        would have gone on with; `ended`: 1 where it was cut or is over. Errors: ValueError for a stack that does not
        follow from those before.
        """
        step = self.steps
        for name, field in self.fields.items():
            field[step] = values[name]
        if self._frames:
            self._keep(step, {key: values[f"obs.{key}"] for key in self._frames})
        self.steps += 1

    def cut(self, lost: Bools, bootstrap: F32) -> None:
        """What the newest step led to is not gone on with where `lost` [N]: an episode that goes on there was cut, and
        what it would have gone on with is worth `bootstrap` [N].
        """
        step = self.steps - 1
        here = lost & (self.fields["ended"][step] == 0)
        self.fields["ended"][step, here], self.fields["bootstrap"][step, here] = 1, bootstrap[here]

    def obs(self, rows: npt.NDArray[np.integer[Any]]) -> dict[str, npt.NDArray[Any]]:
        """What was seen at `rows` [B] of all steps `in_a_row`: key → [B, *shape]."""
        step, env = np.divmod(rows, self.num_envs)
        return {
            key: self._stack(key, step, env, self._begun[step, env])
            if key in self._frames
            else self.in_a_row(f"obs.{key}")[rows]
            for key in self._specs
        }

    def in_a_row(self, name: str) -> npt.NDArray[Any]:
        """A field as [T · N, …], step by step; stacks and clips: see `obs`."""
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
        return State({name: field.copy() for name, field in self._come().items()}, {"steps": self.steps})

    def load(self, state: State) -> None:
        """Go on from there; of another number of environments nothing is kept."""
        self.clear()
        if state.tensors["task"].shape[1] != self.num_envs:
            return
        self.steps = state.numbers["steps"]
        for name, field in self._come().items():
            field[:] = state.tensors[name]

    def _come(self) -> dict[str, npt.NDArray[Any]]:
        """What has come, not copied."""
        found = {name: field[: self.steps] for name, field in self.fields.items()}
        if not self._frames:
            return found
        frames = {f"obs.{key}": kept[: len(kept) - self.capacity + self.steps] for key, kept in self._frames.items()}
        return {**found, **frames, "begun": self._begun[: self.steps]}

    def _keep(self, step: int, seen: Mapping[str, npt.NDArray[Any]]) -> None:
        """The newest frames of what was `seen` ([N, *shape] each), and the others where they are from before."""
        for key, stacks in seen.items():
            spec, kept = self._specs[key], self._frames[key]
            parts = stacks.reshape(self.num_envs, spec.stack, *spec.frame)
            for age in range(spec.stack) if step < spec.stride else (0,):
                kept[spec.reach - 1 + step - age * spec.stride] = parts[:, spec.stack - 1 - age]
        # What is seen says where an episode began: nobody else does where a resume could not bring one back.
        self._begun[step] = self._begun[step - 1] if step else -self._before
        for begun in range(step, max(-1, step - self._before - 1), -1):
            lost = self._differs(step, seen)
            if not lost.any():
                return
            self._begun[step, lost] = begun
        if self._differs(step, seen).any():
            raise ValueError(f"the observation at step {step} of a rollout does not follow from the step before")

    def _differs(self, step: int, seen: Mapping[str, npt.NDArray[Any]]) -> Bools:
        """[N] whether something else was `seen` than the frames say."""
        env, found = np.arange(self.num_envs), np.zeros(self.num_envs, np.bool_)
        for key, stacks in seen.items():
            differs = self._stack(key, np.full_like(env, step), env, self._begun[step]) != stacks
            found |= differs.reshape(self.num_envs, -1).any(1)
        return found

    def _stack(
        self, key: str, step: npt.NDArray[Any], env: npt.NDArray[Any], begun: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """What was seen at `step` by `env`, whose episode had `begun` then: [B, *shape] of [B] each."""
        spec = self._specs[key]
        ages = np.arange(spec.stack)[::-1] * spec.stride
        shown = np.maximum(step[:, None] - ages, begun[:, None])
        return stacked(spec, self._frames[key][spec.reach - 1 + shown, env[:, None]])


def bytes_of(spaces: Spaces, steps: int, num_envs: int) -> int:
    """What a rollout takes."""
    row = sum(prod(shape) * dtype.itemsize for shape, dtype in fields_of(spaces).values())
    before = sum((spec.reach - 1) * prod(spec.frame) * np.dtype(spec.dtype).itemsize for spec in spaces.obs.values())
    return num_envs * (steps * row + before)
