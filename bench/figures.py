"""Where a benchmark's figures go: into `bench/out/`, which git ignores; with `--replace` over the committed ones.

`python bench/tick.py` writes bench/out/tick.csv, `python bench/tick.py --replace` bench/results/tick.csv. The word may
stand anywhere on a benchmark's command line and is taken out of it here, so that no script has to know it.
"""

from __future__ import annotations

import contextlib
import csv
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

FOLDER = Path(__file__).resolve().parent
#: What docs/benchmarks.md is made from.
COMMITTED = FOLDER / "results"
#: What was measured on this machine, and is not committed.
OWN = FOLDER / "out"
_Number = TypeVar("_Number", int, float)
_Key = TypeVar("_Key", bound=Hashable)
_Found = TypeVar("_Found")
#: Beside the figures: which machine each of them is of, which day, and which code.
MACHINES = "machines.csv"


def _told(arguments: list[str]) -> bool:
    """Whether the committed figures are to be replaced; takes the word out."""
    told = "--replace" in arguments
    arguments[:] = [word for word in arguments if word != "--replace"]
    return told


#: Whether this process replaces the committed figures.
REPLACES = _told(sys.argv)


def committed(name: str) -> Path:
    """The committed figures `name`."""
    return COMMITTED / f"{name}.csv"


def newest(name: str) -> Path:
    """The figures `name`: this machine's own where there are some and nobody replaces, else the committed ones."""
    own = OWN / f"{name}.csv"
    return own if own.exists() and not REPLACES else committed(name)


def written(name: str) -> Path:
    """Where the figures `name` go."""
    return (COMMITTED if REPLACES else OWN) / f"{name}.csv"


def read(path: Path) -> list[list[str]]:
    """The head and the rows. Errors: FileNotFoundError."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def save(name: str, head: Sequence[object], rows: Iterable[Sequence[object]], gpu: str = "") -> None:
    """Replace the figures `name` by `rows`, with the machine, the code and its `gpu`, and print where they are. An
    interrupted script leaves the old ones whole. Figures that did not change keep the machine that they name.
    """
    target = written(name)
    folder = target.parent
    folder.mkdir(exist_ok=True)
    lines, before = [[str(cell) for cell in line] for line in (head, *rows)], newest(name)
    told = (gpu, this_machine(), time.strftime("%Y-%m-%d"), CODE)
    machine = ", ".join(part for part in told if part)
    if before.exists() and read(before) == lines:
        machine = measured_on(before.parent).get(name, machine)
    _write(target, lines)
    machines = {**measured_on(folder), name: machine}
    _write(folder / MACHINES, [("figures", "machine"), *sorted(machines.items())])
    print(f"written: {target.relative_to(FOLDER.parent)}", flush=True)


def measured_on(folder: Path) -> dict[str, str]:
    """Figures → the machine that they were measured on, as far as that was written down."""
    try:
        _, *rows = read(folder / MACHINES)
    except FileNotFoundError:
        return {}
    return dict(rows)


def this_machine() -> str:
    """The processor and the number of its cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        model = platform.processor() or platform.machine()
    else:
        found = {field.strip(): value.strip() for field, _, value in (line.partition(":") for line in lines)}
        numbers = f"family {found.get('cpu family', '?')}, model {found.get('model', '?')}"
        model = f"{found.get('model name', platform.machine())} ({numbers})"
    return f"{model}, {os.cpu_count()} cores"


def number(place: int, usual: _Number) -> _Number:
    """The number at that place of the command line, or the usual one."""
    return type(usual)(sys.argv[place]) if len(sys.argv) > place else usual


def timed(call: Callable[[], object], count: int = 1, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds a call, of `count` of them."""
    began = clock()
    for _ in range(count):
        call()
    return (clock() - began) / count


def by_turns(ways: Mapping[_Key, Callable[[], _Found]], rounds: int, warm: int = 1) -> dict[_Key, list[_Found]]:
    """What each way found in each round, after `warm` rounds that do not count: a busy moment meets all of them."""
    found: dict[_Key, list[_Found]] = {key: [] for key in ways}
    for number in range(warm + rounds):
        for key, way in ways.items():
            one = way()
            if number >= warm:
                found[key].append(one)
    return found


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """The median of the quotients within a round: a neighbour on the machine slows whole rounds down."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """(quarter, median, three quarters)."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else 3 * list(values)
    return low, middle, high


def with_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and its standard error; not a number from one value."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return statistics.mean(values), error


def late(values: Sequence[float]) -> tuple[float, float, float]:
    """(median, 90th percentile, worst)."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[int(0.9 * (len(ordered) - 1))], ordered[-1]


def processor_s(pid: int) -> float:
    """Seconds of processor time that a process has taken, to the nanosecond, with the threads of it that ended.

    The number of its clock is as clock_getcpuclockid(3) makes it on Linux. Errors: OSError where it is gone.
    """
    return time.clock_gettime((~pid << 3) | 2)


def processor_s_of(pids: Iterable[int]) -> dict[int, float]:
    """For each pid as `processor_s`, of those that are still there: a child may end after it was listed."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[pid] = processor_s(pid)
    return found


def processor_s_since(before: Mapping[int, float]) -> float:
    """Seconds of processor time since `processor_s_of` gave `before`, of those that are still there."""
    return sum(now - before[pid] for pid, now in processor_s_of(before).items())


def this_code() -> str:
    """The commit that the code is of, and whether it was changed since; "" where git does not tell."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", str(FOLDER), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    try:
        found = git("rev-parse", "--short=8", "HEAD")
        changed = git("diff", "--quiet", "HEAD", "--", ":/*.py", ":/*.c", ":/*.h", ":/*.js").returncode
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"commit {found.stdout.strip()}{' and changes' if changed else ''}" if found.returncode == 0 else ""


#: Of this process: what is committed while it measures is not what it measured.
CODE = this_code()


def _write(target: Path, lines: Iterable[Sequence[object]]) -> None:
    part = target.with_suffix(".part")
    with open(part, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    os.replace(part, target)
