"""What the vectorised environment is asked for and what it answers: records without behaviour.

Shapes: N environments, K tasks; observations and actions as `trainer.envs.spaces` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from trainer.envs.spaces import F32, F64, I32, Bools, Obs
from trainer.envs.suite import SuiteRef
from trainer.errors import EnvironmentFailedError

#: The task number of an environment that has run out of episodes (evaluation only).
NO_TASK = -1


class EnvError(EnvironmentFailedError):
    """An environment cannot go on: it raised, its workers died or hung again and again, or a state does not fit it.

    It names the environments and tasks. It does not mean that the checkpoint is bad: the same state may be
    restored into fresh workers.
    """


@dataclass(frozen=True)
class Script:
    """A fixed list of episodes for one environment, in place of the training schedule: (task, start) pairs.

    Where a suite has no fixed starts, the number and the spec's seed decide the seed of the episode.
    """

    episodes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class VectorSpec:
    """N environments of a suite.

    Every environment has its own stream, `SeedSequence([seed, number, attempt or 0])`: attempt 0 at a fresh start,
    `attempt` for environments that `restore` adds. `scripts` (evaluation) has one script an environment.
    These may be a part of more environments (`algorithm.shards`): every `stride`-th of them, from number `first` on.
    """

    suite: SuiteRef
    num_envs: int
    seed: int
    attempt: int = 0
    stop_at_success: bool = False
    scripts: tuple[Script, ...] | None = None
    first: int = 0
    stride: int = 1

    @property
    def all_envs(self) -> int:
        """How many environments there are with those of the other parts."""
        return self.num_envs * self.stride

    def number(self, index: int) -> int:
        """What environment `index` of these is among all."""
        return self.first + index * self.stride

    def as_json(self) -> dict[str, Any]:
        """For a worker."""
        scripts = None if self.scripts is None else [script.episodes for script in self.scripts]
        own = ("num_envs", "seed", "attempt", "stop_at_success", "first", "stride")
        return {"suite": self.suite.as_json(), "scripts": scripts, **{name: getattr(self, name) for name in own}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` was made of."""
        scripts = value["scripts"]
        if scripts is not None:
            scripts = tuple(Script(tuple((task, start) for task, start in episodes)) for episodes in scripts)
        return cls(**{**value, "suite": SuiteRef.from_json(value["suite"]), "scripts": scripts})


@dataclass(frozen=True)
class Observed:
    """Where the environments stand: `obs` [N, …] by key, `task` [N] (index of the task that `obs` belongs to).

    `anew` [N]: where a `restore` began another episode than the one that it was to go on with; None: nowhere.
    """

    obs: Obs
    task: I32
    anew: Bools | None = None


@dataclass(frozen=True)
class Step:
    """One step of all environments. Every array belongs to the caller.

    `next_obs` is the true successor of the action (the final observation where an episode ended); `obs` is what to
    act on next (after an automatic reset the new episode's first). Bootstrap from `next_obs` unless `terminated`.
    """

    obs: Obs  # [N, …] by key
    next_obs: Obs  # [N, …] by key
    reward: F32  # [N]
    terminated: Bools  # [N] true termination
    truncated: Bools  # [N] cut: by the horizon, or by the environment itself
    success: Bools  # [N] in this step
    task: I32  # [N] of this transition
    next_task: I32  # [N] of `obs`
    finished: Bools  # [N] whether an episode ended; those below are 0 elsewhere
    episode_return: F64  # [N] undiscounted
    episode_length: I32  # [N] steps
    episode_success: Bools  # [N] at any step of the episode, or at its last (`EnvSettings.SUCCESS_AT`)
    #: [N, M] as `EnvSettings.MEASURES` names them; NaN where an episode has none. Not looked at where it names none.
    episode_measures: F64 = field(default_factory=lambda: np.zeros((0, 0)))


def scheduled_task(env_index: int, episode: int, num_envs: int, num_tasks: int) -> int:
    """The task of an environment's `episode`-th episode: N environments walk the task list in waves.

    With N a multiple of K it is `env_index % K` for ever. Else environment i visits all tasks congruent to i modulo
    gcd(N, K), each equally often, and the N environments together visit every task. It depends on the present N only,
    so a run whose N changes still visits every task.
    """
    return (env_index + episode * num_envs) % num_tasks
