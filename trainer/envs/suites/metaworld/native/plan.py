"""Who steps which task: the native stepper or Python."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import get_args

from trainer.envs.suite import StepperChoice, StepperUnavailableError
from trainer.envs.suites.metaworld.native.ports import PORTS

_log = logging.getLogger(__name__)


def native_tasks(tasks: Sequence[str], choice: StepperChoice = "auto") -> frozenset[str]:
    """Those of `tasks` that are stepped natively. The first use on a machine compiles and checks, for seconds.

    Errors: ValueError for an unknown `choice`; StepperUnavailableError where it is "native" and there is no compiler,
    no memory for threads, …; with "auto" that is one line of the log.
    """
    if choice not in get_args(StepperChoice):
        raise ValueError(f"the stepper is {choice!r}; it can be {', '.join(get_args(StepperChoice))}")
    ported = sorted(set(tasks) & set(PORTS))
    if choice == "python" or not ported:
        return frozenset()
    from trainer.envs.suites.metaworld.native.check import approved  # noqa: PLC0415 - loads a library: where it is wanted
    from trainer.envs.suites.metaworld.native.library import load  # noqa: PLC0415

    try:
        return approved(load(), ported)
    except StepperUnavailableError as error:
        if choice == "native":
            raise
        _log.warning("environments are stepped by Python, several times slower: %s", error)
        return frozenset()
