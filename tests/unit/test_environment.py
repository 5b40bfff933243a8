"""No test hears what another one set in the environment."""

from __future__ import annotations

import os

import pytest
from environment import kept_environment


def test_what_is_set_changed_or_removed_is_as_before() -> None:
    os.environ["ANCHORLEG_TEST_CHANGED"] = os.environ["ANCHORLEG_TEST_REMOVED"] = "before"
    with kept_environment():
        os.environ["ANCHORLEG_TEST_ADDED"] = os.environ["ANCHORLEG_TEST_CHANGED"] = "now"
        del os.environ["ANCHORLEG_TEST_REMOVED"]
    assert "ANCHORLEG_TEST_ADDED" not in os.environ
    assert os.environ["ANCHORLEG_TEST_CHANGED"] == os.environ["ANCHORLEG_TEST_REMOVED"] == "before"


def test_every_test_is_within_it(request: pytest.FixtureRequest) -> None:
    assert "own_environment" in request.fixturenames
