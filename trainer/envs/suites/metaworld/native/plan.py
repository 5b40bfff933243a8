"""Who steps which task: the native stepper or Python."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.envs.native.verdicts import chosen
from trainer.envs.suite import StepperChoice
from trainer.envs.suites.metaworld.native.ports import PORTS


def native_tasks(tasks: Sequence[str], choice: StepperChoice = "auto") -> frozenset[str]:
    """Those of `tasks` that are stepped natively. The first use on a machine compiles and checks, for seconds.

    Errors: ValueError, StepperUnavailableError, as `chosen` says.
    """
    return chosen(choice, sorted(set(tasks) & set(PORTS)), _judged)


def _judged(tasks: Sequence[str]) -> frozenset[str]:
    from trainer.envs.suites.metaworld.native.check import approved  # noqa: PLC0415 - loads a library: where it is wanted
    from trainer.envs.suites.metaworld.native.library import load  # noqa: PLC0415

    return approved(load(), tasks)
