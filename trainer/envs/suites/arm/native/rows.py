"""The arms of one group that are stepped natively, and how their episodes stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.native.library import Bound
from trainer.envs.native.rows import SteppedRows
from trainer.envs.spaces import STATE
from trainer.envs.stats import EpisodeStats
from trainer.envs.suites.arm.env import COUNTED, ArmEnv
from trainer.envs.suites.arm.native.library import FAULTS, PAYS, ROW, SIMULATOR_FAULT, ArmLibrary


class ArmRows(SteppedRows):
    """`count` rows, of which those with a binding taken are stepped by `library` on `threads` threads.

    `fields` are the arrays of `SharedBuffers`. Errors of the constructor: StepperUnavailableError.
    """

    def __init__(
        self,
        library: ArmLibrary,
        count: int,
        fields: Mapping[str, npt.NDArray[Any]],
        threads: int,
        horizon: int,
        *,
        stop_at_success: bool = False,
    ) -> None:
        rows, team = np.zeros(count, ROW), library.open_team(min(threads, count))
        rows["horizon"], rows["stop_at_success"] = horizon, stop_at_success
        super().__init__(library, rows, Bound(library, team, rows, list(fields.values())), FAULTS, SIMULATOR_FAULT)
        self.seen = fields[f"next_obs.{STATE}"].shape[1]

    def bind(self, place: int, index: int) -> ArmBinding:
        """The binding of row `place`, for environment number `index`."""
        return ArmBinding(self, place, index)


class ArmBinding:
    """Row number `place` of `rows`, for environment number `index`; taken or free."""

    def __init__(self, rows: ArmRows, place: int, index: int) -> None:
        self._row = rows.rows[place]
        self._row["index"] = index
        self._seen = rows.seen
        self._env: ArmEnv | None = None
        self._settled: ArmEnv | None = None

    @property
    def taken(self) -> bool:
        """Whether its environment is stepped natively."""
        return self._env is not None

    def take(self, env: Any, task: int, stats: EpisodeStats) -> None:
        """From here on `env` (an `ArmEnv`) is stepped natively."""
        row = self._row
        if env is not self._settled:
            _settle(row, env)
            self._settled = env
        row["target"], row["held"] = env.target, env.held
        for name in COUNTED:
            row[name] = getattr(env, name)
        if env.dynamics is not None:
            row["noise"], row["noise_rows"] = env.dynamics.noise.ctypes.data, len(env.dynamics.noise)
        row["length"], row["total"], row["solved"] = stats.length, stats.total, stats.solved
        row["task"], row["stepped"], row["taken"] = task, 0, 1
        self._env = env

    def read(self) -> tuple[EpisodeStats, dict[str, npt.NDArray[Any]] | None]:
        """Bring the environment up to date: (stats, the last observation or None where it was not stepped)."""
        row = self._row
        stats = EpisodeStats(int(row["length"]), float(row["total"]), bool(row["solved"]))
        if self._env is None or not row["stepped"]:
            return stats, None
        self._env.target, self._env.held = row["target"].tolist(), row["held"].tolist()
        for name in COUNTED:
            setattr(self._env, name, int(row[name]))
        return stats, {STATE: row["last"][: self._seen].copy()}

    def leave(self) -> None:
        """The environment is stepped by Python, or not at all."""
        self._row["taken"] = self._row["finished"] = self._row["fault"] = 0
        self._env = None


def _settle(row: Any, env: ArmEnv) -> None:
    """What stays of `row` (a ROW) while `env` lives."""
    row["model"], row["data"] = env.model._address, env.data._address  # noqa: SLF001 - made for this
    row["hand"] = env.data.site_xpos[env.grip].__array_interface__["data"][0]
    row["low"], row["high"], row["reach"] = env.low, env.high, env.reach
    row["pays"], row["is_legacy"] = PAYS[env.settings.reward], env.settings.observation == "legacy"
    row["ends_on_success"], row["episode"] = env.settings.end_on_success, env.settings.horizon
    row["noise"], row["noise_rows"] = 0, 0
