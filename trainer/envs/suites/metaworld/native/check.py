"""Which tasks may be stepped natively here (`trainer.envs.native.verdicts`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer.envs.native import verdicts
from trainer.envs.suites.metaworld.native.library import StepperLibrary

#: Packages whose version may change a bit of a step.
_PACKAGES = ("gymnasium", "metaworld", "mujoco", "numpy", "scipy")
_SUITE = Path(__file__).parents[1]


def approved(stepper: StepperLibrary, tasks: Sequence[str]) -> frozenset[str]:
    """Those of `tasks`, all ported, that step alike on both paths. The others are logged; unknown ones are tried."""

    def alike(task: str) -> bool:
        from trainer.envs.suites.metaworld.native.trial import steps_alike  # noqa: PLC0415 - it loads the simulator

        return steps_alike(stepper, task)

    return verdicts.approved(stepper, tasks, _PACKAGES, _SUITE, alike)
