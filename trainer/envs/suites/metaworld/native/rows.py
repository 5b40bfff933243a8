"""The rows of one group of environments: which are stepped natively, and how their episodes stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from trainer.envs.native.library import SteppedRows
from trainer.envs.spaces import STATE
from trainer.envs.suite import EpisodeStats
from trainer.envs.suites.metaworld.env import TaskEnv
from trainer.envs.suites.metaworld.native.library import ROW, StepperLibrary
from trainer.envs.suites.metaworld.native.ports import read_episode, write_episode, write_settings


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
        """The binding of row `place`, for environment number `index`."""
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
        """Whether its environment is stepped natively."""
        return self._env is not None

    def take(self, env: Any, task: int, stats: EpisodeStats) -> None:
        """From here on `env` (a `MetaworldEnv`), which plays task number `task`, is stepped natively."""
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
        """Bring the environment up to date: (stats, the last observation or None where it was not stepped)."""
        row = self._rows.rows[self._place]
        if self._env is not None:
            read_episode(row, self._env.task, self._env.upstream)
        stats = EpisodeStats(int(row["length"]), float(row["total"]), bool(row["solved"]))
        return stats, {STATE: row["last"].astype(np.float32)} if row["steps"] else None

    def leave(self) -> None:
        """The environment is stepped by Python, or not at all."""
        self._rows.rows[self._place]["port"] = 0
        self._rows.rows[self._place]["finished"] = self._rows.rows[self._place]["fault"] = 0
        self._env = None
