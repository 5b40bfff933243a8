"""Who steps which task: C, where every bit of a trial was the Python path's (`trainer.envs.native.verdicts`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer.envs.native import verdicts
from trainer.envs.suite import StepperChoice
from trainer.envs.suites.metaworld.native.library import StepperLibrary, load
from trainer.envs.suites.metaworld.native.ports import PORTS

#: Packages whose version may change a bit of a step.
PACKAGES = ("gymnasium", "metaworld", "mujoco", "numpy", "scipy")
SUITE = Path(__file__).parents[1]


def native_tasks(tasks: Sequence[str], choice: StepperChoice = "auto") -> frozenset[str]:
    """Those of `tasks` that are stepped natively. The first use on a machine compiles and checks, for seconds.

    Errors: ValueError, StepperUnavailableError, as `verdicts.chosen` says.
    """
    return verdicts.chosen(choice, sorted(set(tasks) & set(PORTS)), lambda names: approved(load(), names))


def approved(stepper: StepperLibrary, tasks: Sequence[str]) -> frozenset[str]:
    """Those of `tasks`, all ported, that step alike on both paths. The others are logged; unknown ones are tried."""

    def alike(task: str) -> bool:
        from trainer.envs.suites.metaworld.native.trial import steps_alike  # noqa: PLC0415 - it loads the simulator

        return steps_alike(stepper, task)

    return verdicts.approved(stepper, tasks, PACKAGES, SUITE, alike)
