"""A vector of one-dimensional point masses with the shapes of Meta-World: a training that takes seconds, not minutes.

Each environment moves on a line by a tenth of its action's first number; task k pays for being near its goal. A state
is exact in the middle of an episode, so everything that is promised of a resume can be asked of it too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.envs.spaces import STATE, ArraySpec, Box, Spaces
from trainer.envs.step import Observed, Step, VectorSpec, scheduled_task
from trainer.state import State

#: Far enough for the mass to reach any goal from anywhere, short enough for many episodes.
HORIZON = 20


class PointMasses:
    def __init__(self, spec: VectorSpec, num_workers: int = 0, *, terminates: bool = False) -> None:
        self.spec = spec
        self.tasks = spec.suite.settings.tasks
        self.spaces = Spaces({STATE: ArraySpec((39,))}, Box(4), self.tasks, HORIZON)
        self.num_envs = spec.num_envs
        self.terminates = terminates
        self.goals = np.linspace(-0.5, 0.5, len(self.tasks) + 2)[1:-1]
        self.place = np.zeros(spec.num_envs)
        self.length = np.zeros(spec.num_envs, np.int32)
        self.episode = np.zeros(spec.num_envs, np.int32)
        self.returns = np.zeros(spec.num_envs)
        self.solved = np.zeros(spec.num_envs, np.bool_)
        self.task = np.zeros(spec.num_envs, np.int32)
        self.rngs = [np.random.default_rng(0) for _ in range(spec.num_envs)]

    def reset(self) -> Observed:
        for i in range(self.num_envs):
            self.rngs[i] = np.random.default_rng([self.spec.seed, i])
            self._begin(i)
        return Observed(self._obs(), self.task.copy())

    @property
    def stepping(self) -> dict[str, str]:
        return dict.fromkeys(self.tasks, "python")

    def step_async(self, actions: Any, *, beside: bool = True) -> None:
        self.ahead = self.step(actions)

    def step_wait(self) -> Step:
        return self.ahead

    def step(self, actions: Any) -> Step:
        assert actions.shape == (self.num_envs, 4)
        assert actions.dtype == np.float32
        task = self.task.copy()
        self.place += 0.1 * np.clip(actions[:, 0], -1, 1)
        distance = np.abs(self.place - self.goals[task])
        reward = (1 - distance).astype(np.float32)
        self.length += 1
        self.returns += reward
        self.solved |= distance < 0.1
        terminated = (distance < 0.02) & self.terminates
        truncated = ~terminated & (self.length >= HORIZON)
        finished = terminated | truncated
        next_obs = self._obs()
        report = {
            "episode_return": np.where(finished, self.returns, 0.0),
            "episode_length": np.where(finished, self.length, 0).astype(np.int32),
            "episode_success": self.solved & finished,
            "episode_measures": np.zeros((len(finished), 0)),
        }
        for i in np.flatnonzero(finished):
            self.episode[i] += 1
            self._begin(i)
        return Step(
            obs=self._obs(),
            next_obs=next_obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=distance < 0.1,
            task=task,
            next_task=self.task.copy(),
            finished=finished,
            **report,
        )

    def snapshot(self) -> State:
        names = ("place", "length", "episode", "returns", "solved", "task")
        arrays = {name: getattr(self, name).copy() for name in names}
        return State(arrays, {"rngs": [rng.bit_generator.state for rng in self.rngs]})

    def restore(self, state: State) -> Observed:
        for name, array in state.tensors.items():
            setattr(self, name, array.copy())
        for rng, saved in zip(self.rngs, state.numbers["rngs"], strict=True):
            rng.bit_generator.state = saved
        return Observed(self._obs(), self.task.copy())

    def close(self) -> None:
        pass

    def _begin(self, i: int) -> None:
        self.task[i] = scheduled_task(i, int(self.episode[i]), self.num_envs, len(self.tasks))
        self.place[i] = self.rngs[i].uniform(-0.5, 0.5)
        self.length[i], self.returns[i], self.solved[i] = 0, 0.0, False

    def _obs(self) -> Any:
        obs = np.zeros((self.num_envs, 39), np.float32)
        obs[:, 0] = self.place
        return {STATE: obs}
