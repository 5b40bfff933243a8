"""One task at play on this machine: an environment, and what there is to see of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trainer.envs.exact import SEEDS
from trainer.envs.frames import OneEpisode
from trainer.envs.shown import Glimpse, Parts, bodies_shown, goal_of, parts_of, poses_of, simulation_of
from trainer.envs.spaces import F32, Actions, Obs
from trainer.envs.stats import EpisodeStats
from trainer.envs.suite import Outcome, Suite
from trainer.live.pictures import jpeg_of

#: Where an environment does not say how many steps it makes a second.
_USUAL_FPS = 30
_NO_POSES: F32 = np.zeros((0, 7), np.float32)


class ShownTask:
    """Task number `task` of `suite`. `parts`: what it looks like; None: it draws itself, or cannot be seen.
    `once_is_enough`: an episode has succeeded if any of its steps did; else if its last one did.

    Errors of all methods: whatever the environment raises.
    """

    def __init__(self, suite: Suite, task: int, rng: np.random.Generator, *, once_is_enough: bool = True) -> None:
        self._suite, self._rng, self._once_is_enough = suite, rng, once_is_enough
        self._env: Any = suite.make(task)
        self._frames = OneEpisode(suite.spaces)
        self._env.reset(0, 0)  # before it nothing has a place
        self.parts: Parts | None = parts_of(self._env)
        simulation = simulation_of(self._env)
        self._data: Any = None if self.parts is None or simulation is None else simulation[1]
        self._bodies = bodies_shown(simulation[0]) if self.parts is not None and simulation is not None else None
        self.why_no_picture = ""
        self._draws = self.parts is None and self._drawn_by_itself(task)
        self.stats = EpisodeStats()

    @property
    def draws_itself(self) -> bool:
        """Whether there is a `jpeg`."""
        return self._draws

    @property
    def step_s(self) -> float | None:
        """How long a step takes, as far as that is known; None: `at_s` tells."""
        if self._data is not None:
            return None
        upstream = getattr(self._env, "upstream", None)
        fps = (getattr(upstream, "metadata", None) or {}).get("render_fps")
        return 1 / float(fps or _USUAL_FPS)

    @property
    def at_s(self) -> float:
        """Simulated time; 0 where there is none."""
        return 0.0 if self._data is None else float(self._data.time)

    def reset(self, seed: int | None = None) -> Obs:
        """Begin an episode: that of `seed`, where the suite has no fixed starts; None: any. What a policy sees of it is
        [1, …] of each key.
        """
        self.stats = EpisodeStats()
        seed = int(self._rng.integers(SEEDS)) if seed is None else seed
        starts = self._suite.starts
        where = (seed,) if self._draws else (0 if starts is None else int(self._rng.integers(starts)), seed)
        return self._frames.begin(self._env.reset(*where))

    def step(self, action: Actions) -> Outcome:
        """Act. Its `obs` is [1, …] of each key."""
        given: Outcome = self._env.step(action)
        outcome = replace(given, obs=self._frames.push(given.obs))
        self.stats.length += 1
        self.stats.total += float(outcome.reward)
        self.stats.solved = outcome.success or (self.stats.solved and self._once_is_enough)
        return outcome

    def glimpse(self, episode: int) -> Glimpse:
        """Where it stands."""
        stats, poses, goal = self.stats, _NO_POSES, None
        if self._bodies is not None:
            poses, goal = poses_of(self._data, self._bodies), goal_of(self._env)
        return Glimpse(episode, stats.length, stats.total, stats.solved, self.at_s, poses, goal)

    def jpeg(self) -> bytes:
        """As it draws itself."""
        return jpeg_of(self._env.picture())

    def close(self) -> None:
        """Free it."""
        self._env.close()

    def _drawn_by_itself(self, task: int) -> bool:
        watched = getattr(self._suite, "watched", None)
        if watched is None:
            return False
        try:
            env = watched(task)
            env.reset(0)
            jpeg_of(env.picture())
        except Exception as error:  # noqa: BLE001 - somebody else's: then facts alone are shown
            self.why_no_picture = str(error) or type(error).__name__
            return False
        self._env.close()
        self._env = env
        return True
