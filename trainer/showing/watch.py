"""Single episodes of environments that draw themselves, to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.envs.episodes import seed_of
from trainer.envs.frames import OneEpisode
from trainer.envs.spaces import Obs
from trainer.errors import ConfigError, EnvironmentFailedError
from trainer.evaluation.playable import Playable
from trainer.showing.beside import newest_frames, with_views

#: Where an environment does not say how many steps it makes a second.
USUAL_FPS = 30


@dataclass(frozen=True)
class WatchedEpisode:
    """How one episode went. `number` is that of an evaluation's episode; `success` None: nothing was said of it."""

    number: int
    episode_return: float
    steps: int
    success: bool | None

    def words(self) -> str:
        """One line."""
        how = "" if self.success is None else ", solved" if self.success else ", not solved"
        return f"episode {self.number}: return {self.episode_return:,.1f} in {self.steps:,} steps{how}"


class WatchedTask:
    """One task of a suite that has `watched`."""

    def __init__(self, policy: Playable, task: str | None) -> None:
        suite: Any = policy.suite(policy.goal_seed).open()
        if not hasattr(suite, "watched"):
            raise ConfigError("play.no-pictures", suite=policy.env.name)
        self._policy, self._horizon = policy, suite.spaces.horizon
        self._frames, self._specs = OneEpisode(suite.spaces), suite.spaces.obs
        self._index = policy.task_index(task)
        self._tells_success = suite.tells_success
        self.task = policy.tasks[self._index]
        self._obs: Obs = suite.spaces.zeros(1)
        self._env = suite.watched(self._index)
        self.fps = int(self._env.upstream.metadata.get("render_fps") or USUAL_FPS)

    def picture(self) -> Any:
        """As it looks now, and what the policy sees of it where those are pictures: uint8 [H, W, 3], both even. Errors:
        ConfigError where it cannot be drawn.
        """
        try:
            drawn = self._env.picture()
        except Exception as error:
            raise ConfigError("play.not-drawn", task=self.task, why=error) from error
        even = np.ascontiguousarray(drawn[: drawn.shape[0] // 2 * 2, : drawn.shape[1] // 2 * 2])
        return with_views(even, newest_frames(self._specs, self._obs))

    def reset(self, number: int) -> None:
        """Begin that episode, as an evaluation does. Errors: EnvironmentFailedError."""
        seed = seed_of(self._policy.goal_seed, self._index, number)
        try:
            self._obs = self._frames.begin(self._env.reset(seed))
        except Exception as error:
            raise EnvironmentFailedError("play.episode-failed", task=self.task, episode=number, why=error) from error

    def play(self, number: int, on_step: Callable[[], None]) -> WatchedEpisode:
        """One episode; `on_step` is called at its start and after each step. Errors: EnvironmentFailedError."""
        try:
            return self._play(number, on_step)
        except (ConfigError, EnvironmentFailedError):
            raise
        except Exception as error:
            raise EnvironmentFailedError("play.episode-failed", task=self.task, episode=number, why=error) from error

    def close(self) -> None:
        """Free it."""
        self._env.close()

    def _play(self, number: int, on_step: Callable[[], None]) -> WatchedEpisode:
        self.reset(number)
        total, steps = 0.0, 0
        solved: list[bool] = []
        on_step()
        while steps < self._horizon:
            outcome = self._env.step(self._policy.act(self._obs, np.array([self._index], np.int32))[0])
            self._obs = self._frames.push(outcome.obs)
            total, steps = total + outcome.reward, steps + 1
            solved.append(outcome.success)
            on_step()
            if outcome.terminated or outcome.truncated:
                break
        success = self._policy.env.succeeded(solved) if self._tells_success else None
        return WatchedEpisode(number, total, steps, success)


@contextmanager
def watching(policy: Playable, task: str | None) -> Iterator[WatchedTask]:
    """A `WatchedTask` that is closed at the end. Errors: ConfigError."""
    stage = WatchedTask(policy, task)
    try:
        yield stage
    finally:
        stage.close()
