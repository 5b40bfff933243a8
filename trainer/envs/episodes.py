"""One place of the vector: which task and goal come next, where the episode stands, and its random stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainer.envs.instances import EnvPool
from trainer.envs.stats import Books
from trainer.envs.step import F32, NO_TASK, OBS_DIM, VectorSpec, scheduled_task
from trainer.envs.suites.metaworld.env import EnvState, TaskEnv

if TYPE_CHECKING:
    from trainer.envs.suites.metaworld.native.rows import Seat


@dataclass
class Outcome:
    """What one step of one slot produced; `finished` is (return, length, success) where an episode ended."""

    next_obs: F32
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    task: int
    finished: tuple[float, int, bool] | None


class EnvSlot:
    """Environment number `index` of `spec`: episodes one after another on instances from the pool.

    Training: episode e is of task `scheduled_task(index, e, …)`, at a goal drawn from this slot's own generator.
    Evaluation: the episodes of its script, then idle (task `NO_TASK`, zeros).
    With a `seat` the episodes of the tasks in `native` are stepped by the native stepper, others by `step`.
    """

    def __init__(
        self,
        index: int,
        spec: VectorSpec,
        pool: EnvPool,
        seat: Seat | None = None,
        native: frozenset[str] = frozenset(),
    ) -> None:
        self.index = index
        self.spec = spec
        self.pool = pool
        self.task = NO_TASK
        self.obs = np.zeros(OBS_DIM, np.float32)
        self._seat = seat
        self._native = native
        self._env: TaskEnv | None = None
        self._rng = np.random.default_rng()
        self._episode = 0
        self._goal = 0
        self._books = Books()

    @property
    def is_native(self) -> bool:
        """Whether the present episode is stepped by the native stepper: then call `end`, not `step`."""
        return self._seat is not None and self._seat.taken

    def start(self, attempt: int) -> None:
        """Begin the first episode, with the stream of (seed, index, attempt)."""
        self._rng = np.random.default_rng(np.random.SeedSequence([self.spec.seed, self.index, attempt]))
        self._episode = 0
        self._begin()

    def step(self, action: F32) -> Outcome:
        """Act ([4]); where the episode ends begin the next one, so that `obs` and `task` are what to act on."""
        task, books = self.task, self._books
        if self._env is None:
            return Outcome(np.zeros(OBS_DIM, np.float32), 0.0, False, False, False, NO_TASK, None)
        observation, reward, terminated, success = self._env.step(action)
        next_obs = observation.astype(np.float32)
        books.length += 1
        books.total += float(reward)  # some tasks reward in np.float32, which would make the sum one too
        books.solved = books.solved or success
        stopped = self.spec.stop_at_success and success
        truncated = not terminated and (books.length >= self.spec.horizon or stopped)
        finished = None
        if terminated or truncated:
            finished = (books.total, books.length, books.solved)
            self.end()
        else:
            self.obs = next_obs
        return Outcome(next_obs, reward, terminated, truncated, success, task, finished)

    def end(self) -> None:
        """The episode is over: begin the next one."""
        self._episode += 1
        self._begin()

    def snapshot(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """(arrays, meta) of this slot between two steps."""
        self._catch_up()
        meta: dict[str, Any] = {
            "task": self.task,
            "episode": self._episode,
            "goal": self._goal,
            "length": self._books.length,
            "solved": self._books.solved,
            "rng": self._rng.bit_generator.state,
            "env": None,
        }
        arrays: dict[str, npt.NDArray[Any]] = {"obs": self.obs.copy(), "return": np.array([self._books.total])}
        if self._env is not None:
            state = self._env.snapshot()
            meta["env"] = state.meta
            arrays.update(state.arrays)
        return arrays, meta

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Go on from `snapshot`. Errors: EnvError where it does not fit."""
        self._catch_up()
        self._release()
        self.task = int(meta["task"])
        self._episode, self._goal = int(meta["episode"]), int(meta["goal"])
        self._books = Books(int(meta["length"]), float(arrays["return"][0]), bool(meta["solved"]))
        self.obs = np.array(arrays["obs"], dtype=np.float32)
        if meta["env"] is not None:
            self._env = self.pool.borrow(self.task)
            self._env.restore(EnvState(arrays, meta["env"]))
        rng = np.random.default_rng(0)
        rng.bit_generator.state = meta["rng"]
        self._rng = rng
        self._sit_down()

    def _begin(self) -> None:
        self._catch_up()
        task, goal = self._next_episode()
        if self._env is None or task != self.task:
            self._release()
            self._env = None if task == NO_TASK else self.pool.borrow(task)
        self.task, self._goal, self._books = task, goal, Books()
        if self._env is None:
            self.obs = np.zeros(OBS_DIM, np.float32)
        else:
            self.obs = self.pool.reset(self._env, task, goal).astype(np.float32)
        self._sit_down()

    def _next_episode(self) -> tuple[int, int]:
        if self.spec.scripts is not None:
            episodes = self.spec.scripts[self.index].episodes
            return episodes[self._episode] if self._episode < len(episodes) else (NO_TASK, 0)
        task = scheduled_task(self.index, self._episode, self.spec.num_envs, len(self.spec.tasks))
        return task, int(self._rng.integers(len(self.spec.goals[task])))

    def _release(self) -> None:
        if self._env is not None:
            self.pool.give_back(self.task, self._env)
            self._env = None

    def _catch_up(self) -> None:
        if self._seat is not None and self._seat.taken:
            self._books, observed = self._seat.read()
            self.obs = self.obs if observed is None else observed

    def _sit_down(self) -> None:
        if self._seat is None:
            return
        if self._env is not None and self._env.task in self._native:
            self._seat.take(self._env, self.task, self._books)
        else:
            self._seat.leave()
