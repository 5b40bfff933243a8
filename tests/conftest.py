"""Fixtures that the integration tests and the tests with real parts share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

# The real parts bring tools (daemons.py) that the local tests use too, in whatever order files are collected.
sys.path.insert(0, str(Path(__file__).parent / "real"))
sys.path.insert(0, str(Path(__file__).parent / "simulator"))

from relay import NewRelay, Relay


@pytest.fixture
def new_relay(tmp_path: Path) -> Iterator[NewRelay]:
    """Makes runs of the counting program: `new_relay(total=60, slots=2)`; see `Relay.make`. All end with the test."""
    with ExitStack() as stack:

        def make(name: str = "toy", **settings: Any) -> Relay:
            relay = Relay.make(tmp_path / name, **settings)
            stack.callback(relay.clean_up)
            return relay

        yield make
