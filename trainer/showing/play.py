"""Policies at play: single episodes to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from trainer.config.suites import Metaworld
from trainer.config.tasknames import GOALS_PER_TASK
from trainer.envs.cameras import Picture
from trainer.envs.episodes import seed_of
from trainer.envs.frames import OneEpisode
from trainer.envs.suites.metaworld import shapes
from trainer.envs.suites.metaworld.env import MetaworldEnv, TaskEnv
from trainer.envs.suites.metaworld.goals import goal_table
from trainer.evaluation.playable import Playable
from trainer.showing.beside import newest_frames

#: Steps that are still shown after the first success: half a second of the simulation.
ENCORE_STEPS = 40
#: Every second step of 12.5 ms is as fast as the simulation really is, at 40 pictures a second.
STEPS_A_FRAME = 2
#: Two seconds: a hand that has reached its goal in less is gone before one has looked.
_SHORT_STEPS = 160


def steps_a_frame(steps: int) -> int:
    """How many steps of an episode of `steps` go by between two pictures: short ones are shown at half speed."""
    return STEPS_A_FRAME if steps >= _SHORT_STEPS else STEPS_A_FRAME // 2


@dataclass(frozen=True)
class Episode:
    """How one episode went. `solved_at` is the step of the first success, None: never.

    `episode_return` is undiscounted, up to the first success or the horizon, as in evaluations.
    """

    goal: int
    solved_at: int | None
    episode_return: float
    steps: int

    def words(self) -> str:
        """One line."""
        how = "not solved" if self.solved_at is None else f"solved at step {self.solved_at}"
        return f"goal {self.goal}: {how}, return {self.episode_return:,.0f}"


class PlayedTask:
    """One task of Meta-World at its fixed goals. `simulation` is MuJoCo's (model, data), to look at."""

    def __init__(self, policy: Playable, task: str | None) -> None:
        self._policy = policy
        self._index = policy.task_index(task)
        self.task = policy.tasks[self._index]
        settings = cast("Metaworld", policy.env)
        spaces = shapes.spaces(settings)
        self._frames, self._specs = OneEpisode(spaces), spaces.obs
        self._env = MetaworldEnv(TaskEnv(self.task), goal_table(self.task, policy.goal_seed), settings)
        self._obs = self._frames.begin(self._env.reset(0, 0))  # before it nothing has a place that could be drawn

    @property
    def simulation(self) -> tuple[Any, Any]:
        """MuJoCo's model and data, to draw from."""
        return self._env.upstream.simulation

    @property
    def views(self) -> list[Picture]:
        """What the policy sees now, of each camera [H, W, 3]; none where it sees numbers alone."""
        return newest_frames(self._specs, self._obs)

    def play(self, goal: int, on_step: Callable[[int], None]) -> Episode:
        """One episode from goal number `goal`; `on_step(n)` is called at its start (0) and after each step.

        A success is followed by half a second more, which counts for nothing.
        """
        start = goal % GOALS_PER_TASK
        self._obs = self._frames.begin(self._env.reset(start, seed_of(self._policy.goal_seed, self._index, start)))
        on_step(0)
        task = np.array([self._index], np.int32)
        total, solved_at, step, last = 0.0, None, 0, self._policy.env.horizon
        while step < last:
            outcome = self._env.step(self._policy.act(self._obs, task)[0])
            self._obs = self._frames.push(outcome.obs)
            step += 1
            if solved_at is None:
                total += float(outcome.reward)
                if outcome.success:
                    solved_at, last = step, min(last, step + ENCORE_STEPS)
            on_step(step)
        return Episode(start, solved_at, total, step)

    def close(self) -> None:
        """Free the simulation."""
        self._env.close()


@contextmanager
def staged(policy: Playable, task: str | None) -> Iterator[PlayedTask]:
    """A `PlayedTask` that is closed at the end. Errors: ConfigError where the policy does not play `task`."""
    stage = PlayedTask(policy, task)
    try:
        yield stage
    finally:
        stage.close()
