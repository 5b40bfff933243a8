"""The environment of a test's own process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

#: Of pytest itself: it changes while a test runs.
_PYTEST = "PYTEST_CURRENT_TEST"


@contextmanager
def kept_environment() -> Iterator[None]:
    """Afterwards the environment is what it was before; what did not change is not touched."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in {*os.environ, *before} - {_PYTEST}:
            if name not in before:
                del os.environ[name]
            elif os.environ.get(name) != before[name]:
                os.environ[name] = before[name]
