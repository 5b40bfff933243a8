"""Meta-World v3, with the goal visible and reward version v2, as a suite."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainer.config.settings import GOALS_PER_TASK
from trainer.config.suites import Metaworld
from trainer.envs.native import verdicts
from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, F32, F64, STATE, Obs
from trainer.envs.suite import Bounds, Env, StepperChoice
from trainer.envs.suites.metaworld.goals import digest, goal_tables
from trainer.envs.suites.metaworld.native.library import StepperLibrary, load
from trainer.envs.suites.metaworld.native.ports import PORTS
from trainer.envs.suites.metaworld.shapes import BOUNDS, spaces

if TYPE_CHECKING:
    from trainer.envs.suites.metaworld.native.rows import NativeRows

#: Packages whose version may change a bit of a step.
PACKAGES = ("gymnasium", "metaworld", "mujoco", "numpy", "scipy")
_HERE = Path(__file__).parent


def native_tasks(tasks: Sequence[str], choice: StepperChoice = "auto") -> frozenset[str]:
    """Those of `tasks` that are stepped in C, as every bit of a trial was the Python path's. The first use on a machine
    compiles and checks, for seconds.

    Errors: ValueError, StepperUnavailableError, as `verdicts.chosen` says.
    """
    return verdicts.chosen(choice, sorted(set(tasks) & set(PORTS)), lambda names: approved(load(), names))


def approved(stepper: StepperLibrary, tasks: Sequence[str]) -> frozenset[str]:
    """Those of `tasks`, all ported, that step alike on both paths. The others are logged; unknown ones are tried."""

    def alike(task: str) -> bool:
        from trainer.envs.suites.metaworld.native.rows import steps_alike

        return steps_alike(stepper, task)

    return verdicts.approved(stepper, tasks, PACKAGES, _HERE, alike)


class Scripted:
    """Meta-World's own scripted policy of a task: the action [4] for a whole state [39]."""

    def __init__(self, task: str) -> None:
        from metaworld.policies import ENV_POLICY_MAP

        policy: Any = ENV_POLICY_MAP[task]
        self._policy = policy()

    def __call__(self, state: F32) -> F32:
        """Evaluate it, within the bounds that the environment would cut it to."""
        with warnings.catch_warnings():  # it warns where it pushes further than it can: cut below
            warnings.simplefilter("ignore")
            action = self._policy.get_action(state.astype(np.float64))
        return np.clip(np.asarray(action, np.float32), ACTION_LOW, ACTION_HIGH)


class Suite:
    """Its tasks at their 50 goals of `seed`. Goal tables are kept in `cache`."""

    tells_success = True
    #: Of the simulation: five substeps of 2.5 ms.
    steps_a_second = 80

    def __init__(self, settings: Metaworld, seed: int = 0, cache: Path | None = None) -> None:
        self.settings = settings
        self.tasks = settings.tasks
        self.seed = seed
        self._cache = cache
        self.spaces = spaces(settings)
        self.starts = GOALS_PER_TASK

    @cached_property
    def goals(self) -> tuple[F64, ...]:
        """[50, d] of each task."""
        return goal_tables(self.tasks, self.seed, self._cache)

    @property
    def bounds(self) -> Bounds | None:
        return None if self.settings.has_pictures else BOUNDS

    def starts_near(self, task: int, obs: Obs) -> list[int]:
        ends = self.goals[task][:, -3:]  # which the observation ends with, too
        order: list[int] = np.argsort(np.abs(ends - obs[STATE][-3:]).max(axis=1), kind="stable").tolist()
        return order

    @property
    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("metaworld", "mujoco")}

    def describe(self) -> dict[str, str]:
        return {f"goals of {task}": digest(table) for task, table in zip(self.tasks, self.goals, strict=True)}

    def make(self, task: int) -> Env:
        from trainer.envs.suites.metaworld.env import MetaworldEnv, TaskEnv

        return MetaworldEnv(TaskEnv(self.tasks[task]), self.goals[task], self.settings)

    def script(self, task: int) -> Scripted:
        """Upstream's scripted policy: action [4] of the whole state [39]."""
        return Scripted(self.tasks[task])

    def stepped_natively(self, choice: StepperChoice) -> frozenset[int]:
        if self.settings.has_pictures:
            return verdicts.none_natively(choice, "Meta-World's pictures are drawn by Python")
        native = native_tasks(self.tasks, choice)
        return frozenset(index for index, task in enumerate(self.tasks) if task in native)

    def stepper(
        self, places: int, fields: Mapping[str, npt.NDArray[Any]], threads: int, *, stop_at_success: bool
    ) -> NativeRows:
        from trainer.envs.suites.metaworld.native.rows import NativeRows

        return NativeRows(load(), places, fields, threads, self.spaces.horizon, stop_at_success=stop_at_success)
