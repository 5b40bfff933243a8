"""No test may fail because its machine is slow: none asserts on a measured time, none has a short deadline of its own.

What something costs is measured by bench/. How long a test waits is `daemons.PATIENCE_S`, one number for all, or
`daemons.WORK_S`; both are shorter than what pytest gives to a whole test, which would not say what was waited for.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import LONG_S, PATIENCE_S, WORK_S
from each_file import each_of

TESTS = Path(__file__).parents[1]
#: What reads a clock, by the last part of its name, and the fields of `resource.getrusage`.
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time", "getrusage"}
CLOCKS |= {"ru_utime", "ru_stime"}
#: `wait(2)` is a look at what has come until then; `wait(20)` is a deadline.
LOOK_S = 5.0
#: A limit of less is one that is meant to be met: whatever is called with it must give up.
MEANT_S = 1.0
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


def catches_it(tried: ast.Try) -> bool:
    """Whether a program that goes on too long is expected."""
    return any(one.type is not None and "TimeoutExpired" in ast.unparse(one.type) for one in tried.handlers)


class Deadlines:
    """The deadlines of a module's waits, in seconds, as far as they can be read: [(line, seconds)].

    They are those of `WAITS`, and in any other call what its keywords `…timeout_s` say; none where TimeoutExpired
    is caught on the spot: that is a look.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._known = {"PATIENCE_S": PATIENCE_S, "WORK_S": WORK_S, "LONG_S": LONG_S}
        for node in tree.body:
            if isinstance(node, ast.Assign) and (value := self.seconds(node.value)) is not None:
                self._known |= {last_name(target): value for target in node.targets}
        looks = {node for tried in ast.walk(tree) if isinstance(tried, ast.Try) and catches_it(tried)
                 for part in tried.body for node in ast.walk(part)}  # fmt: skip
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node not in looks]
        self.all = [(call.lineno, value) for call in calls for value in self._of_call(call)]

    def seconds(self, node: ast.expr) -> float | None:
        """What a number, a constant of the module, or so many times one of them says."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, float | int) else None
        if isinstance(node, ast.Name):
            return self._known.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left, right = self.seconds(node.left), self.seconds(node.right)
            return None if left is None or right is None else left * right
        return None

    def _of_call(self, call: ast.Call) -> Iterator[float]:
        name = last_name(call.func)
        least = LOOK_S if name == "wait" else 0.0 if name in WAITS else MEANT_S
        given = [word.value for word in call.keywords if word.arg and word.arg.endswith("timeout_s")]
        if name in WAITS:
            given += [word.value for word in call.keywords if word.arg == "timeout"]
            place = WAITS[name]
            given += [] if place is None else call.args[place : place + 1]
        yield from (value for node in given if (value := self.seconds(node)) is not None and value > least)


def too_short(tree: ast.Module) -> list[int]:
    """The lines whose deadline is a number of their own, and short."""
    return [line for line, seconds in Deadlines(tree).all if seconds < PATIENCE_S]


def too_long(tree: ast.Module) -> list[int]:
    """The lines whose deadline may come after pytest's own."""
    return [line for line, seconds in Deadlines(tree).all if seconds > WORK_S and seconds != LONG_S]


def limits_of_tests(tree: ast.Module) -> list[float | None]:
    """What `pytest.mark.timeout(…)` says, where it is a number."""
    deadlines = Deadlines(tree)
    return [
        deadlines.seconds(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.timeout"
    ]


EVERY_FILE = sorted(TESTS.rglob("*.py"))


@pytest.mark.long
@each_of(EVERY_FILE)
def test_no_test_depends_on_how_fast_its_machine_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    looks_at_a_clock = any(name in text for name in CLOCKS)
    assert not looks_at_a_clock or too_slow(tree) == [], (
        "a time is measured, and asserted to be short: measure it in bench/"
    )
    assert too_short(tree) == [], "a deadline is for what hangs: wait with daemons.PATIENCE_S"
    assert too_long(tree) == [], "pytest ends the test before that, and says not what was waited for: WORK_S at most"


def test_one_wait_ends_before_pytest_ends_the_test(pytestconfig: pytest.Config) -> None:
    [of_long_ones] = re.findall(r"-m long --timeout (\d+)", (TESTS.parent / "Makefile").read_text(encoding="utf-8"))
    assert WORK_S < float(pytestconfig.getini("timeout")) <= LONG_S < float(of_long_ones)
    for path in EVERY_FILE:
        text = path.read_text(encoding="utf-8")
        for limit in limits_of_tests(ast.parse(text)) if "mark.timeout" in text else []:
            assert limit is not None, f"{path}: a test's own limit is a number"
            assert limit >= float(of_long_ones), f"{path}: a test's own limit only shortens what it is given"


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
        "SOON_S = 60.0\nwait_for(there, 'it', SOON_S)",
        "SOON_S = 3\nthread.join(2 * SOON_S)",
        "Executor(command_timeout_s=3.0)",
    ],
)
def test_a_short_deadline_is_found(code: str) -> None:
    assert too_short(ast.parse(code)) != []


@pytest.mark.parametrize(
    "code",
    [
        "a.wait(2)",
        "wait_for(there, 'it', PATIENCE_S)",
        "queue.read(timeout_s=0.2)  # it must give up",
        "TWICE_S = 2 * PATIENCE_S\nrun(words, timeout=TWICE_S)",
        "run(words, timeout=WORK_S)",
        "run(words, timeout=LONG_S)",
        "try:\n    run(words, timeout=5)\nexcept subprocess.TimeoutExpired:\n    pass",
        "run(words, timeout=given)",
    ],
)
def test_a_deadline_for_what_hangs_is_left_alone(code: str) -> None:
    assert too_short(ast.parse(code)) == too_long(ast.parse(code)) == []


@pytest.mark.parametrize("code", ["run(words, timeout=10 * PATIENCE_S)", "AGES_S = 1800.0\nwait_for(a, 'b', AGES_S)"])
def test_a_deadline_after_the_tests_own_is_found(code: str) -> None:
    assert too_long(ast.parse(code)) != []


def test_a_tests_own_limit_is_found() -> None:
    code = "LONG_S = 1800.0\n@pytest.mark.timeout(LONG_S)\ndef test_it():\n    pass\nx = [pytest.mark.timeout(3600)]"
    assert sorted(limits_of_tests(ast.parse(code))) == [1800.0, 3600]
