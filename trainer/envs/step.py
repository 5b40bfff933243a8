"""What the vectorised environment is asked for and what it answers: records without behaviour.

Shapes: N environments, K tasks, observations of 39 and actions of 4 numbers (Meta-World v3 with the goal visible).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.errors import EnvironmentFailedError

#: Two stacked frames of 18 numbers, then the goal's position.
OBS_DIM = 39
#: The hand's displacement in x, y, z and the gripper, each in [-1, 1].
ACT_DIM = 4
ACT_LOW, ACT_HIGH = -1.0, 1.0
#: The task number of an environment that has run out of episodes (evaluation only).
NO_TASK = -1

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


class EnvError(EnvironmentFailedError):
    """An environment cannot go on: it raised, its workers died or hung again and again, or a state does not fit it.

    It names the environments and tasks. It does not mean that the checkpoint is bad: the same state may be
    restored into fresh workers.
    """


@dataclass(frozen=True)
class Script:
    """A fixed list of episodes for one environment, in place of the training schedule: (task, goal) pairs."""

    episodes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class VectorSpec:
    """N environments over K tasks.

    `tasks` are names in index order, `goals[k]` the fixed goals of task k, [G, d] float64 (`goals.goal_table`).
    Every environment has its own stream, `SeedSequence([seed, index, attempt or 0])`: attempt 0 at a fresh start,
    `attempt` for environments that `restore` adds. `scripts` (evaluation) has one script an environment.
    """

    tasks: tuple[str, ...]
    goals: tuple[F64, ...] = field(repr=False)
    num_envs: int
    seed: int
    horizon: int
    attempt: int = 0
    stop_at_success: bool = False
    scripts: tuple[Script, ...] | None = None


@dataclass(frozen=True)
class Observed:
    """Where the environments stand: `obs` [N, 39], `task` [N] (index of the task that `obs` belongs to)."""

    obs: F32
    task: I32


@dataclass(frozen=True)
class Step:
    """One step of all environments. Every array belongs to the caller.

    `next_obs` is the true successor of the action (the final observation where an episode ended); `obs` is what to
    act on next (after an automatic reset the new episode's first). Bootstrap from `next_obs` unless `terminated`.
    """

    obs: F32  # [N, 39]
    next_obs: F32  # [N, 39]
    reward: F32  # [N], reward version v2, in [0, 10]
    terminated: Bools  # [N] true termination; Meta-World has none
    truncated: Bools  # [N] the horizon was reached
    success: Bools  # [N] in this step
    task: I32  # [N] of this transition
    next_task: I32  # [N] of `obs`
    finished: Bools  # [N] whether an episode ended; the three below are 0 elsewhere
    episode_return: F64  # [N] undiscounted
    episode_length: I32  # [N] steps
    episode_success: Bools  # [N] at any step of the episode


@dataclass(frozen=True)
class VectorState:
    """All of N environments between two steps: `arrays` go into safetensors, `meta` into JSON.

    `arrays["obs"]` [N, 39] and `arrays["task"]` [N] are what `Observed` holds; `envs.<i>.*` is environment i.
    """

    arrays: dict[str, npt.NDArray[Any]]
    meta: Mapping[str, Any]


def scheduled_task(env_index: int, episode: int, num_envs: int, num_tasks: int) -> int:
    """The task of an environment's `episode`-th episode: N environments walk the task list in waves.

    With N a multiple of K it is `env_index % K` for ever. Else environment i visits all tasks congruent to i modulo
    gcd(N, K), each equally often, and the N environments together visit every task. It depends on the present N only,
    so a run whose N changes still visits every task.
    """
    return (env_index + episode * num_envs) % num_tasks
