"""No test may fail because its machine is slow: none asserts on a measured time, none has a short deadline of its own.

What something costs is measured by bench/. How long a test waits is `daemons.PATIENCE_S`, one number for all, or
`daemons.WORK_S`; both are shorter than what pytest gives to a whole test, which would not say what was waited for.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from daemons import LONG_S, PATIENCE_S, WORK_S
from each_file import each_of

TESTS = Path(__file__).parents[1]
#: A clock that something is taken from: `monotonic() < until` is a deadline.
CLOCKS = re.compile(r"\b(monotonic|perf_counter|process_time|thread_time)(_ns)?\(\) - |\bru_[us]time - ")
#: `wait(2)` is a look at what has come until then, and what gives up after less than a second is meant to.
LOOK_S = 5.0
#: The place of the deadline in calls that give up.
WAITS = {"wait_for": 2, "communicate": 1, "join": 0, "wait": 0}
EVERY_FILE = sorted({*TESTS.rglob("*.py")} - {Path(__file__)})


def measured(tree: ast.Module) -> list[int]:
    """Lines that assert on what a clock said there."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert) and CLOCKS.search(ast.unparse(node))]


def deadlines(tree: ast.Module) -> list[int]:
    """Lines whose deadline is a number of their own."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            place = WAITS.get(ast.unparse(node.func).rpartition(".")[2], len(node.args))
            given = [*node.args[place : place + 1], *(word.value for word in node.keywords if word.arg == "timeout")]
            numbers = [each.value for each in given if isinstance(each, ast.Constant)]
            found += [node.lineno for each in numbers if isinstance(each, float | int) and LOOK_S < each < PATIENCE_S]
    return found


@pytest.mark.long
@each_of(EVERY_FILE)
def test_no_test_depends_on_how_fast_its_machine_is(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert measured(tree) == [], "a time is measured, and asserted to be short: measure it in bench/"
    assert deadlines(tree) == [], "a deadline is for what hangs: wait with daemons.PATIENCE_S"


def test_one_wait_ends_before_pytest_ends_the_test(pytestconfig: pytest.Config) -> None:
    [of_long_ones] = re.findall(r"-m long --timeout (\d+)", (TESTS.parent / "Makefile").read_text(encoding="utf-8"))
    assert WORK_S < float(pytestconfig.getini("timeout")) <= LONG_S < float(of_long_ones)


def test_a_measured_time_and_a_short_deadline_are_found() -> None:
    assert measured(ast.parse("assert time.monotonic() - began < 2.0")) == [1]
    assert deadlines(ast.parse("wait_for(there, 'it', 8)\nrun(words, timeout=20)\nline.wait(2)")) == [1, 2]
