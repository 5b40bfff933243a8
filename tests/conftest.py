"""Fixtures that the integration tests and the tests with real parts share."""

from __future__ import annotations

import importlib
import json
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from environment import kept_environment
from mounts import mounted
from needs import need_drawing, unskipped
from relay import NewRelay, Relay

# Whoever is started by a script with `&` ignores Ctrl-C, and so would all programs that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return unskipped(report, [words for mark in item.iter_markers("may_skip") for words in mark.args])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return unskipped((yield))


@pytest.fixture(autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test, or what it loads, sets in the environment is gone with it (MuJoCo sets PYOPENGL_PLATFORM)."""
    with kept_environment():
        os.environ["SB3_LOGDIR"] = str(tmp_path_factory.getbasetemp() / "sb3")  # else a folder in /tmp for each learner
        yield


@pytest.fixture
def new_relay(tmp_path: Path) -> Iterator[NewRelay]:
    """Makes runs of the counting program: `new_relay(total=60, slots=2)`; see `Relay.make`. All end with the test."""
    with ExitStack() as stack:

        def make(name: str = "toy", **settings: Any) -> Relay:
            relay = Relay.make(tmp_path / name, **settings)
            stack.callback(relay.clean_up)
            return relay

        yield make


@pytest.fixture
def eyes_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo draws in the test's own process, however it was loaded; the next test's children know nothing of it."""
    way, driver = need_drawing()
    for name, value in (
        ("MUJOCO_GL", way), ("PYOPENGL_PLATFORM", way), ("ANCHORLEG_DRAWING", json.dumps([way, driver])),
        ("LP_NUM_THREADS", "0"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    if way:
        context = importlib.import_module(f"mujoco.{way}").GLContext
        monkeypatch.setattr(importlib.import_module("mujoco.gl_context"), "GLContext", context)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is soon full: 8 MB, of which the code of a run takes two."""
    where = tmp_path / "disk"
    where.mkdir()
    with mounted(where, "size=8m"):
        yield where
