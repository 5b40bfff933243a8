"""N environments and where they stand: training, evaluation and actors step through it; and those of a process's
shards side by side, n of each, in the order of shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from trainer.envs.spaces import Actions, Obs, Spaces
from trainer.envs.step import Observed, Step
from trainer.state import State, of_shards, shard_of


class Envs(Protocol):
    """What is needed of `trainer.envs.vector.VectorEnv`."""

    num_envs: int
    spaces: Spaces

    @property
    def stepping(self) -> dict[str, str]:
        """Task name → what steps it."""

    def reset(self) -> Observed:
        """Start afresh."""

    def step_async(self, actions: Actions, *, beside: bool = True) -> None:
        """Begin to act in every environment. `beside`: whether something is done before `step_wait`."""

    def step_wait(self) -> Step:
        """What came of it."""

    def snapshot(self) -> State:
        """Everything that `restore` needs."""

    def restore(self, state: State) -> Observed:
        """Go on from there."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Transition:
    """What one vector step was: `action` in `obs`, and the step that came of them."""

    obs: Obs
    action: Actions
    step: Step


class Collector:
    """`envs`, begun or restored, and where they stand: `obs` by key [N, …], `task` [N] (`NO_TASK`: its script is over).

    Errors of every method: those of `envs`.
    """

    def __init__(self, envs: Envs, state: State | None = None) -> None:
        """Begin afresh, or go on from `state`."""
        self.envs = envs
        observed = envs.restore(state) if state is not None else envs.reset()
        self.obs, self.task = observed.obs, observed.task
        #: [N] whose episode is another one than `state` has; None: nobody's.
        self.anew = observed.anew
        self._actions: Actions | None = None

    @property
    def num_envs(self) -> int:
        """N."""
        return self.envs.num_envs

    def begin(self, actions: Actions, *, beside: bool = True) -> None:
        """Begin to act; `wait` must follow. `beside`: whether something is done between the two."""
        self._actions = actions
        self.envs.step_async(actions, beside=beside)

    def wait(self) -> Transition:
        """What came of it; `obs` and `task` are then what to act on."""
        if self._actions is None:
            raise RuntimeError("call begin() before wait()")
        step = self.envs.step_wait()
        transition = Transition(self.obs, self._actions, step)
        self.obs, self.task, self._actions = step.obs, step.next_task, None
        return transition

    def step(self, actions: Actions) -> Transition:
        """Both at once."""
        self.begin(actions, beside=False)
        return self.wait()

    def state(self) -> State:
        """All environments, between two steps."""
        return self.envs.snapshot()


class ShardedEnvs:
    """`parts`: shard → its environments. All arrays are [shards · n, …]; a state has each shard's by itself."""

    def __init__(self, parts: Mapping[int, Envs]) -> None:
        self.parts = dict(parts)
        every = list(self.parts.values())
        self.each = every[0].num_envs
        self.num_envs = self.each * len(every)
        self.spaces = every[0].spaces

    @property
    def stepping(self) -> dict[str, str]:
        return first_of(self).stepping

    def reset(self) -> Observed:
        return _side_by_side([envs.reset() for envs in self.parts.values()])

    def step_async(self, actions: Actions, *, beside: bool = True) -> None:
        for envs, part in zip(self.parts.values(), np.split(actions, len(self.parts)), strict=True):
            envs.step_async(part, beside=beside)

    def step_wait(self) -> Step:
        steps = [envs.step_wait() for envs in self.parts.values()]
        return Step(**{field.name: _joined([getattr(step, field.name) for step in steps]) for field in fields(Step)})

    def snapshot(self) -> State:
        return of_shards({shard: envs.snapshot() for shard, envs in self.parts.items()})

    def restore(self, state: State) -> Observed:
        return _side_by_side([envs.restore(shard_of(state, shard)) for shard, envs in self.parts.items()])

    def close(self) -> None:
        for envs in self.parts.values():
            envs.close()


def first_of(envs: Envs) -> Envs:
    """The environments of the first shard here, or all where there is one."""
    return next(iter(envs.parts.values())) if isinstance(envs, ShardedEnvs) else envs


def rows_of(obs: Obs, rows: slice) -> Obs:
    """Some environments' part of what all see."""
    return {key: array[rows] for key, array in obs.items()}


def step_of(step: Step, rows: slice) -> Step:
    """Some environments' part of a step."""
    every: dict[str, Any] = {field.name: getattr(step, field.name) for field in fields(Step)}
    part: dict[str, Any] = {
        name: rows_of(array, rows) if isinstance(array, dict) else array[rows] for name, array in every.items()
    }
    return Step(**part)


def _side_by_side(parts: Sequence[Observed]) -> Observed:
    return Observed(_joined([part.obs for part in parts]), _joined([part.task for part in parts]))


def _joined(parts: Iterable[Any]) -> Any:
    every = list(parts)
    if isinstance(every[0], dict):
        return {key: np.concatenate([part[key] for part in every]) for key in every[0]}
    return np.concatenate(every)
