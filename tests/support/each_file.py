"""A rule for many files as one test: thousands of tests are slow to collect and to hand to workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest


def each_of(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """`rule` asserts something of one file; the test says of all `paths` which break it, and how."""
    files = list(paths)

    def of(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            assert files, "no file is looked at"
            broken = []
            for path in files:
                try:
                    rule(path)
                except AssertionError as error:
                    broken.append(f"{path}: {error}")
            if broken:
                pytest.fail("\n".join(broken))

        test.__name__, test.__doc__, test.__module__ = rule.__name__, rule.__doc__, rule.__module__
        return test

    return of
