"""No test may fail because its machine is slow: none asserts on a measured time, none has a short deadline of its own.

What something costs is measured by bench/. How long a test waits is `daemons.PATIENCE_S`, one number for all.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S

TESTS = Path(__file__).parents[1]
#: What reads a clock, by the last part of its name, and the fields of `resource.getrusage`.
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time", "getrusage"}
CLOCKS |= {"ru_utime", "ru_stime"}
#: `wait(2)` is a look at what has come until then; `wait(20)` is a deadline.
LOOK_S = 5.0
#: Calls that give something up after so many seconds: the name → which argument says so (None: only by keyword).
WAITS: dict[str, int | None] = {
    "wait_for": 2, "communicate": 1, "join": 0, "wait": 0, "run": None, "check_output": None, "check_call": None,
}  # fmt: skip


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


class Measured:
    """What of a module is a reading of a clock, and what the time between two of them.

    A name counts by what is assigned or appended to it anywhere in the module; a function by what it returns.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.readings: set[str] = set()
        self.spans: set[str] = set()
        before = -1
        while before != len(self.readings) + len(self.spans):
            before = len(self.readings) + len(self.spans)
            for node in ast.walk(tree):
                self._learn(node)
            for function in functions_of(tree):
                returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
                if any(map(self.is_span, returned)):
                    self.spans.add(function.name)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names, value = {last_name(target) for target in targets} - {""}, node.value
        elif isinstance(node, ast.Call) and last_name(node.func) == "append" and isinstance(node.func, ast.Attribute):
            names, value = {last_name(node.func.value)} - {""}, node.args[0] if node.args else node.func
        else:
            return
        if self.is_span(value):
            self.spans |= names
        elif isinstance(value, ast.Call | ast.Attribute | ast.Name) and self.reads(value):
            self.readings |= names

    def reads(self, node: ast.expr) -> bool:
        """Whether a clock is read in it."""
        return any(
            isinstance(part, ast.Attribute | ast.Name) and last_name(part) in CLOCKS | self.readings
            for part in ast.walk(node)
        )

    def is_span(self, node: ast.expr) -> bool:
        """Whether it holds the time between two readings."""
        return any(
            (isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and self.reads(part))
            or (isinstance(part, ast.Attribute | ast.Name) and last_name(part) in self.spans)
            for part in ast.walk(node)
        )


def too_slow(tree: ast.Module) -> list[int]:
    """The lines that assert that some measured time is short. That it is long enough is the test's own business."""
    measured = Measured(tree)
    lines = []
    for compare in (part for node in ast.walk(tree) if isinstance(node, ast.Assert) for part in ast.walk(node.test)):
        if not isinstance(compare, ast.Compare):
            continue
        sides = [compare.left, *compare.comparators]
        for left, how, right in zip(sides, compare.ops, sides[1:], strict=False):
            at_most = (
                left if isinstance(how, ast.Lt | ast.LtE) else right if isinstance(how, ast.Gt | ast.GtE) else None
            )
            if at_most is not None and measured.is_span(at_most):
                lines.append(compare.lineno)
    return lines


def too_short(tree: ast.Module) -> list[int]:
    """The lines whose deadline is a number of their own, and short."""
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or (name := last_name(node.func)) not in WAITS:
            continue
        place = WAITS[name]
        given = [keyword.value for keyword in node.keywords if keyword.arg in {"timeout", "timeout_s"}]
        given += [] if place is None else node.args[place : place + 1]
        seconds = [word.value for word in given if isinstance(word, ast.Constant)]
        seconds = [value for value in seconds if name != "wait" or not isinstance(value, float | int) or value > LOOK_S]
        if any(isinstance(value, int | float) and value < PATIENCE_S for value in seconds):
            lines.append(node.lineno)
    return lines


EVERY_FILE = sorted(TESTS.rglob("*.py"))


@pytest.mark.parametrize("path", EVERY_FILE, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_depends_on_how_fast_its_machine_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    looks_at_a_clock = any(name in text for name in CLOCKS)
    assert not looks_at_a_clock or too_slow(tree) == [], (
        "a time is measured, and asserted to be short: measure it in bench/"
    )
    assert too_short(tree) == [], "a deadline is for what hangs: wait with daemons.PATIENCE_S"


def test_one_wait_ends_before_pytest_ends_the_test(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("timeout")) > 2 * PATIENCE_S


@pytest.mark.parametrize(
    "code",
    [
        "began = time.monotonic()\nact()\nassert time.monotonic() - began < 2.0",
        "began = perf_counter()\ntook = perf_counter() - began\nassert 0.1 < took <= LIMIT_S",
        "took = []\ntook.append(time.monotonic() - began)\nassert sorted(took)[2] < 1.0",
        "after = resource.getrusage(resource.RUSAGE_CHILDREN)\nassert after.ru_utime - before.ru_utime < QUICK_S",
        "def cpu_s():\n    return process_time() - before\n\ndef test():\n    assert BUDGET_S > min(cpu_s(), cpu_s())",
    ],
)
def test_a_measured_time_is_found(code: str) -> None:
    assert too_slow(ast.parse(textwrap.dedent(code))) != []


@pytest.mark.parametrize(
    "code",
    [
        "until = time.monotonic() + PATIENCE_S\nwhile not there():\n    assert time.monotonic() < until",
        "began = time.monotonic()\nact()\nassert time.monotonic() - began > TTL_S  # not sooner",
        "assert view['limit_s'] < 60",
    ],
)
def test_what_is_no_measured_time_is_left_alone(code: str) -> None:
    assert too_slow(ast.parse(code)) == []


@pytest.mark.parametrize(
    "code",
    [
        "wait_for(there, 'it', 5)",
        "child.communicate(timeout=10)",
        "thread.join(1.0)",
        "run(words, timeout=20)",
        "a.wait(9)",
    ],
)
def test_a_short_deadline_is_found(code: str) -> None:
    assert too_short(ast.parse(code)) != []
