"""The rows of one group of environments: which are stepped natively, and how their episodes stand.

`steps_alike` has both paths side by side: whether a task steps natively as it does in Python, to the last bit.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from trainer.config.suites import MAX_HORIZON, Metaworld
from trainer.envs.native import verdicts
from trainer.envs.native.library import SteppedRows
from trainer.envs.shared import SharedBuffers
from trainer.envs.spaces import STATE
from trainer.envs.suite import EpisodeStats, StepFaultError
from trainer.envs.suites.metaworld.env import MetaworldEnv, TaskEnv
from trainer.envs.suites.metaworld.goals import goal_table
from trainer.envs.suites.metaworld.native.library import ROW, StepperLibrary
from trainer.envs.suites.metaworld.native.ports import read_episode, write_episode, write_settings
from trainer.envs.suites.metaworld.shapes import spaces


class NativeRows(SteppedRows):
    """The tasks of one group that are stepped natively."""

    def __init__(
        self,
        library: StepperLibrary,
        count: int,
        fields: Mapping[str, npt.NDArray[Any]],
        threads: int,
        horizon: int,
        *,
        stop_at_success: bool = False,
    ) -> None:
        super().__init__(library, count, fields, threads)
        self.horizon = horizon
        self.stop_at_success = stop_at_success
        self._settings: WeakKeyDictionary[TaskEnv, Any] = WeakKeyDictionary()

    def bind(self, place: int, index: int) -> NativeBinding:
        return NativeBinding(self, place, index)

    def settings_of(self, env: TaskEnv) -> Any:
        """A row with what stays while `env` lives."""
        known = self._settings.get(env)
        if known is None:
            known = np.zeros((), ROW)
            write_settings(known, env.task, env.upstream)
            self._settings[env] = known
        return known


class NativeBinding:
    """Row number `place` of `rows`, for environment number `index`; taken or free."""

    def __init__(self, rows: NativeRows, place: int, index: int) -> None:
        self._rows = rows
        self._place = place
        self._index = index
        self._env: TaskEnv | None = None

    @property
    def taken(self) -> bool:
        return self._env is not None

    def take(self, env: Any, task: int, stats: EpisodeStats) -> None:
        rows = self._rows.rows
        inner: TaskEnv = env.upstream
        rows[self._place] = self._rows.settings_of(inner)
        row = rows[self._place]
        write_episode(row, inner.task, inner.upstream)
        row["index"], row["task"] = self._index, task
        row["horizon"], row["stop_at_success"] = self._rows.horizon, self._rows.stop_at_success
        row["length"], row["total"], row["solved"] = stats.length, stats.total, stats.solved
        self._env = inner

    def read(self) -> tuple[EpisodeStats, dict[str, npt.NDArray[Any]] | None]:
        row = self._rows.rows[self._place]
        if self._env is not None:
            read_episode(row, self._env.task, self._env.upstream)
        stats = EpisodeStats(int(row["length"]), float(row["total"]), bool(row["solved"]))
        return stats, {STATE: row["last"].astype(np.float32)} if row["steps"] else None

    def leave(self) -> None:
        self._rows.rows[self._place]["port"] = 0
        self._rows.rows[self._place]["finished"] = self._rows.rows[self._place]["fault"] = 0
        self._env = None


#: Of each of two episodes; enough for the scripted policies to reach the object.
_STEPS = 80
#: Every so many steps one of them is random.
_TURN = 4
_SEED = 20_000

_log = logging.getLogger(__name__)


def steps_alike(stepper: StepperLibrary, task: str) -> bool:
    """Two episodes of random and of upstream's scripted actions, side by side on both paths."""
    from metaworld.policies import ENV_POLICY_MAP

    policies: dict[str, Any] = ENV_POLICY_MAP
    policy, rng, goals = policies[task](), np.random.default_rng(_SEED), goal_table(task, _SEED)
    buffers = SharedBuffers(spaces(Metaworld(tasks=(task,))), 1)
    rows = NativeRows(stepper, 1, buffers.fields, 1, MAX_HORIZON)
    binding, ours, theirs = rows.bind(0, 0), TaskEnv(task), TaskEnv(task)
    try:
        for goal in range(2):
            ours.reset(goals[goal])
            observation = theirs.reset(goals[goal])
            binding.take(MetaworldEnv(ours, goals), 0, EpisodeStats())
            for step in range(_STEPS):
                with warnings.catch_warnings(action="ignore"):  # upstream's policies say that they are clipped
                    scripted = np.clip(policy.get_action(observation), -1, 1)
                action = (scripted if step % _TURN else rng.uniform(-1.2, 1.2, 4)).astype(np.float32)
                buffers.fields["actions"][0] = action
                rows.step()
                observation, reward, _, success = theirs.step(action)
                row = rows.rows[0]
                seen = row["last"].tobytes(), row["reward"].tobytes(), bool(buffers.fields["success"][0])
                if seen != (observation.tobytes(), np.float64(reward).tobytes(), success):
                    return False
            binding.read()
            if not verdicts.are_same(ours.snapshot(), theirs.snapshot()):
                return False
    except (StepFaultError, ValueError, AssertionError) as error:
        _log.warning("the check of %s failed: %s", task, error)
        return False
    finally:
        rows.close()
        buffers.close()
        ours.close()
        theirs.close()
    return True
