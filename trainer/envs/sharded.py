"""The environments of a process's shards, side by side: n of each, in the order of shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from trainer.envs.collector import Envs
from trainer.envs.spaces import Actions, Obs
from trainer.envs.step import Observed, Step
from trainer.state import State, of_shards, shard_of


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
        """Task name → what steps it."""
        return first_of(self).stepping

    def reset(self) -> Observed:
        """Start afresh."""
        return _side_by_side([envs.reset() for envs in self.parts.values()])

    def step_async(self, actions: Actions, *, beside: bool = True) -> None:
        """Begin to act in every environment."""
        for envs, part in zip(self.parts.values(), np.split(actions, len(self.parts)), strict=True):
            envs.step_async(part, beside=beside)

    def step_wait(self) -> Step:
        """What came of it."""
        steps = [envs.step_wait() for envs in self.parts.values()]
        return Step(**{field.name: _joined([getattr(step, field.name) for step in steps]) for field in fields(Step)})

    def snapshot(self) -> State:
        """Everything that `restore` needs."""
        return of_shards({shard: envs.snapshot() for shard, envs in self.parts.items()})

    def restore(self, state: State) -> Observed:
        """Go on from there."""
        return _side_by_side([envs.restore(shard_of(state, shard)) for shard, envs in self.parts.items()])

    def close(self) -> None:
        """End it."""
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
