"""What is missing is named where it is skipped, and in CI a skip is a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from container import Container
from daemons import PATIENCE_S
from mounts import mounted

TESTS = Path(__file__).parents[1]
TOY = """
import pytest

def test_body():
    pytest.skip("no disk")

@pytest.mark.skipif(True, reason="no root")
def test_mark():
    pass

@pytest.fixture
def part():
    pytest.skip("no daemon")

def test_part(part):
    pass

@pytest.mark.may_skip("no daemon")
def test_allowed(part):
    pass

@pytest.mark.may_skip("no daemon")
def test_says_other():
    pytest.skip("no disk")

@pytest.mark.may_skip
def test_says_nothing(part):
    pass

@pytest.mark.xfail
def test_expected():
    assert False

def test_good():
    pass
"""
NOT_ALLOWED = ("test_says_other", "test_says_nothing")
TOY_FILE = 'import pytest\npytest.importorskip("a_package_that_nobody_has")\n'


def outcomes(folder: Path, **env: str) -> dict[str, str]:
    """What became of each toy test under the conftest of all tests."""
    (folder / "test_toy.py").write_text(TOY)
    (folder / "test_toy_file.py").write_text(TOY_FILE)
    command = [
        sys.executable, "-m", "pytest", "-vv", "--color=no", "--continue-on-collection-errors", "-p", "conftest",
        "-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(folder), str(folder),
    ]  # fmt: skip
    path = ":".join(map(str, (TESTS, TESTS / "support", TESTS.parent)))
    without = {name: value for name, value in os.environ.items() if name != "CI" and "PYTEST" not in name}
    done = subprocess.run(
        command, env={**without, "PYTHONPATH": path, **env}, cwd=folder, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    said = re.findall(r"^(?:\S+::(\w+) ([A-Z]+)|ERROR (test_toy_file)\.py)\b", done.stdout, re.MULTILINE)
    assert said, done.stdout + done.stderr
    return {test or file: outcome or "ERROR" for test, outcome, file in said}


@pytest.mark.long
def test_elsewhere_a_skip_is_a_skip(tmp_path: Path) -> None:
    found = outcomes(tmp_path)
    good = {"test_expected": "XFAIL", "test_good": "PASSED"}
    assert (
        found == dict.fromkeys(("test_body", "test_mark", "test_part", "test_allowed", *NOT_ALLOWED), "SKIPPED") | good
    )


@pytest.mark.long
def test_in_ci_it_is_a_failure_unless_the_test_may(tmp_path: Path) -> None:
    assert outcomes(tmp_path, CI="true") == {
        "test_body": "FAILED", "test_mark": "ERROR", "test_part": "ERROR", "test_toy_file": "ERROR",
        "test_says_other": "FAILED", "test_says_nothing": "ERROR",
        "test_allowed": "SKIPPED", "test_expected": "XFAIL", "test_good": "PASSED",
    }  # fmt: skip


@pytest.fixture
def forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mount(8) and ch-run are refused what they ask of the kernel, as in many containers."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("mount", "ch-run"):
        (programs / name).write_text('#!/bin/sh\necho "${0##*/}: permission denied." >&2\nexit 1\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@pytest.mark.usefixtures("forbidden")
def test_root_that_may_not_mount_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(pytest.skip.Exception, match=r"missing: mount: permission denied\."), mounted(tmp_path, "ro"):
        pass


@pytest.mark.usefixtures("forbidden")
def test_a_container_that_may_not_be_entered_is_missing(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"missing: ch-run: permission denied\."):
        Container.make(tmp_path / "image")
