"""What a training's environments need and a job can begin while it imports torch, which takes it a second."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, cast

from trainer.config.find import SUITES, find
from trainer.config.settings import EnvSettings
from trainer.envs.suite import Suite, SuiteRef


class EarlySuite(Suite, Protocol):
    """A `Suite` that has something to begin."""

    def begin_early(self) -> None:
        """Begin, in threads that need little of Python's lock, what else the first `make` of each task would do."""

    def drop_early(self) -> None:
        """The environments are there: forget what none of them took, where workers have their own."""


_begun: list[EarlySuite] = []


def begin_early(env: EnvSettings, seed: int) -> None:
    """Have the suite begin. What goes wrong here is told where it is needed."""
    if env.draws != "no":
        return  # how MuJoCo draws it must be told before it is loaded
    with suppress(ValueError, ImportError):
        if hasattr(find(SUITES, env.name), "begin_early"):
            suite = cast("EarlySuite", SuiteRef(env, seed).open())
            suite.begin_early()
            _begun.append(suite)


def drop_early() -> None:
    """What was begun has been taken, or nobody will."""
    while _begun:
        _begun.pop().drop_early()
