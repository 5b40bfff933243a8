"""The rows of one group of environments: which are stepped natively, and how their episodes stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from trainer.envs.stats import Books
from trainer.envs.step import F32, VectorSpec
from trainer.envs.suites.metaworld.env import TaskEnv
from trainer.envs.suites.metaworld.native.library import FAULTS, ROW, SIMULATOR_FAULT, Stepper
from trainer.envs.suites.metaworld.native.ports import read_episode, write_episode, write_settings


class RowFaultError(Exception):
    """The step of row `place` failed. It does not say whether others of the same call did as well."""

    def __init__(self, place: int, text: str) -> None:
        super().__init__(text)
        self.place = place


class Rows:
    """`count` rows, of which those with a seat taken are stepped by `stepper` on `threads` threads.

    `fields` are the board's arrays. Errors of the constructor: StepperUnavailableError.
    """

    def __init__(
        self, stepper: Stepper, spec: VectorSpec, count: int, fields: Mapping[str, npt.NDArray[Any]], threads: int
    ) -> None:
        self.spec = spec
        self.rows = np.zeros(count, ROW)
        self._stepper = stepper
        self._team = stepper.open_team(min(threads, count))
        self._bound = stepper.bind(self._team, self.rows, list(fields.values()))
        self._settings: WeakKeyDictionary[TaskEnv, Any] = WeakKeyDictionary()

    def step(self) -> list[int]:
        """Step every taken row; the places whose episode has ended. Errors: RowFaultError."""
        ended = self._bound.step()
        if ended < 0:
            place = int(np.flatnonzero(self.rows["fault"])[0])
            fault = int(self.rows["fault"][place])
            said = f": {self._stepper.error_text()}" if fault == SIMULATOR_FAULT else ""
            raise RowFaultError(place, FAULTS[fault] + said)
        return np.flatnonzero(self.rows["finished"]).tolist() if ended else []

    def race(self, steps: int) -> None:
        """The physics of `steps` steps alone: for measurements."""
        self._bound.race(steps)

    def settings_of(self, env: TaskEnv) -> Any:
        """A row with what stays while `env` lives."""
        known = self._settings.get(env)
        if known is None:
            known = np.zeros((), ROW)
            write_settings(known, env.task, env.upstream)
            self._settings[env] = known
        return known

    def close(self) -> None:
        """End the threads. May be called twice."""
        self._stepper.close_team(self._team)
        self._team = 0


class Seat:
    """Row number `place` of `rows`, for environment number `index`; taken or free."""

    def __init__(self, rows: Rows, place: int, index: int) -> None:
        self._rows = rows
        self._place = place
        self._index = index
        self._env: TaskEnv | None = None

    @property
    def taken(self) -> bool:
        """Whether its environment is stepped natively."""
        return self._env is not None

    def take(self, env: TaskEnv, task: int, books: Books) -> None:
        """From here on `env`, which plays task number `task`, is stepped natively."""
        rows, spec = self._rows.rows, self._rows.spec
        rows[self._place] = self._rows.settings_of(env)
        row = rows[self._place]
        write_episode(row, env.task, env.upstream)
        row["index"], row["task"] = self._index, task
        row["horizon"], row["stop_at_success"] = spec.horizon, spec.stop_at_success
        row["length"], row["total"], row["solved"] = books.length, books.total, books.solved
        self._env = env

    def read(self) -> tuple[Books, F32 | None]:
        """Bring the environment up to date: (books, [39] last observation or None where it was not stepped)."""
        row = self._rows.rows[self._place]
        if self._env is not None:
            read_episode(row, self._env.upstream)
        books = Books(int(row["length"]), float(row["total"]), bool(row["solved"]))
        return books, row["last"].astype(np.float32) if row["steps"] else None

    def leave(self) -> None:
        """The environment is stepped by Python, or not at all."""
        self._rows.rows[self._place]["port"] = 0
        self._rows.rows[self._place]["finished"] = self._rows.rows[self._place]["fault"] = 0
        self._env = None
