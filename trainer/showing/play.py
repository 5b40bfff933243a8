"""Policies at play: an evaluated checkpoint, and single episodes to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trainer import device as machine
from trainer.envs.metaworld import TaskEnv
from trainer.errors import ConfigError
from trainer.evaluate import MIN_LANES, Evaluation, evaluate, unseen_seed
from trainer.showing.playable import Playable, of_checkpoint
from trainer.tasknames import GOALS_PER_TASK
from trainer.tasks import goal_table

#: Steps that are still shown after the first success: half a second of the simulation.
ENCORE_STEPS = 40


@dataclass(frozen=True)
class Played:
    """An evaluated checkpoint."""

    path: Path
    step: int
    evaluation: Evaluation
    notes: tuple[str, ...]


def evaluate_checkpoint(
    path: Path,
    *,
    goals: int,
    goal_seed: int | None,
    device: str,
    unseen_goals: int = 0,
    best: bool = False,
    threads: int | None = None,
    num_workers: int | None = None,
    goals_dir: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Played:
    """Evaluate the newest good checkpoint at or below `path`, or its `best`, on `goals` fixed goals a task.

    `goal_seed` None: the goals it was trained on. `unseen_goals` a task are played, too, that those are not. `threads`
    (torch's) None: the training's. `num_workers` None: by the CPUs. The rest is for `evaluate`; `interrupted` may only
    look. Errors: ConfigError, NoGoodCheckpointError, EnvError.
    """
    if device not in {"auto", "cpu", "cuda", "mps"}:
        raise ConfigError(f"there is no device {device!r}; use auto, cpu, cuda or mps")
    policy = of_checkpoint(path, device, best=best, threads=threads)
    total = len(policy.tasks) * (goals + unseen_goals)

    def played(count: int, seed: int, before: int) -> Evaluation:
        result = evaluate(
            policy.act,
            policy.tasks,
            count,
            policy.horizon,
            seed,
            machine.workers(num_workers, max(len(policy.tasks), MIN_LANES)),
            goals_dir=goals_dir,
            progress=progress and (lambda done, _: progress(before + done, total)),
            interrupted=interrupted,
        )
        if result is None:
            raise AssertionError("nobody interrupts this evaluation")
        return result

    seed = policy.goal_seed if goal_seed is None else goal_seed
    found = played(goals, seed, 0)
    if unseen_goals:
        unseen = played(unseen_goals, unseen_seed(policy.goal_seed), total - len(policy.tasks) * unseen_goals)
        found = replace(found, unseen=unseen)
    return Played(Path(policy.name), policy.step, found, policy.notes)


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


class Stage:
    """One task at its fixed goals. `simulation` is MuJoCo's (model, data), to look at."""

    def __init__(self, policy: Playable, task: str | None) -> None:
        self._policy = policy
        self._index = policy.task_index(task)
        self.task = policy.tasks[self._index]
        self._goals = goal_table(self.task, policy.goal_seed)
        self._env = TaskEnv(self.task)
        self._env.reset(self._goals[0])  # before it nothing has a place that could be drawn

    @property
    def simulation(self) -> tuple[Any, Any]:
        """MuJoCo's model and data, to draw from."""
        return self._env.simulation

    def play(self, goal: int, on_step: Callable[[int], None]) -> Episode:
        """One episode from goal number `goal`; `on_step(n)` is called at its start (0) and after each step.

        A success is followed by half a second more, which counts for nothing.
        """
        obs = self._env.reset(self._goals[goal % GOALS_PER_TASK]).astype(np.float32)
        on_step(0)
        task = np.array([self._index], np.int32)
        total, solved_at, step, last = 0.0, None, 0, self._policy.horizon
        while step < last:
            action = self._policy.act(obs[None], task)[0]
            observation, reward, _, success = self._env.step(action)
            obs = observation.astype(np.float32)
            step += 1
            if solved_at is None:
                total += float(reward)
                if success:
                    solved_at, last = step, min(last, step + ENCORE_STEPS)
            on_step(step)
        return Episode(goal % GOALS_PER_TASK, solved_at, total, step)

    def close(self) -> None:
        """Free the simulation."""
        self._env.close()


@contextmanager
def staged(policy: Playable, task: str | None) -> Iterator[Stage]:
    """A `Stage` that is closed at the end. Errors: ConfigError where the policy does not play `task`."""
    stage = Stage(policy, task)
    try:
        yield stage
    finally:
        stage.close()
