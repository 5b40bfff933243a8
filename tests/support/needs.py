"""What a test on real parts does where one is missing."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

import pytest

AReport = TypeVar("AReport", pytest.TestReport, pytest.CollectReport)


def need(what: str, missing: list[str]) -> None:
    """Skip the test unless everything is there."""
    if missing:
        is_missing(f"{what} is not there (missing: {', '.join(missing)}): run tests/real/install.sh")


def need_package(name: str) -> None:
    """As `need`, of a package that the `dev` extra brings; it is imported, as some register what they have by that."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        is_missing(f"{error}: run make test")


@cache
def need_drawing() -> tuple[str, str]:
    """As `need`, of a way in which MuJoCo draws here: it, and the driver. This process is left as it is."""
    from trainer.errors import ConfigError
    from trainer.machine import drawing

    try:
        return drawing.choose_renderer()
    except ConfigError as error:
        is_missing(str(error))
        raise


def is_missing(words: str) -> None:
    """Skip the test, or its whole file."""
    pytest.skip(words, allow_module_level=True)


def unskipped(report: AReport, may_say: Sequence[str] = ()) -> AReport:
    """In CI a skip is a failure, whatever skips: what a new machine lacks must not pass for tested. One that says any
    of `may_say` is none.
    """
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        words = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not any(each in words for each in may_say):
            said = "In CI nothing is skipped unless it is marked may_skip, with words that it says."
            report.outcome, report.longrepr = "failed", f"{said} {words}"
    return report
