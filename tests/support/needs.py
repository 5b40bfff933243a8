"""What a test on real parts does where one is missing."""

from __future__ import annotations

import os

import pytest


def need(what: str, missing: list[str]) -> None:
    """Skip the test unless everything is there; in CI a missing real part is a failure."""
    if not missing:
        return
    words = f"{what} is not there (missing: {', '.join(missing)}): run tests/real/install.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(words)
    pytest.skip(words)
