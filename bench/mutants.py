"""Faults that are planted one by one: which of them the quick tests see.

`python bench/mutants.py [--only ROOM|ID ...] [--resume] [--out NAME] [--timeout S] [--list] [--check]`: mutants.toml
has the faults by room, each a line of the product, what is planted in its place, and the tests that can see it. They
are run on a copy of the tree, with an interpreter that knows the copy alone. A fault is caught where a test fails that
passes without it, or hangs (`timeout`). The figures are saved after each fault; `--resume` leaves out those that are
there. `--check` plants nothing: does each line stand where it should, once? Writes mutants.csv, and mutants_rooms.csv
where each fault has its row.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import figures
import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(__file__).with_suffix(".toml")
HEAD = ("id", "room", "outcome", "first failing test", "seconds")
CAUGHT, MISSED, TIMEOUT = "caught", "missed", "timeout"
#: No test takes as long, unless it hangs.
TIMEOUT_S = 300.0
#: What takes most of a test's start: loaded once. None of it is ours.
LOADED = ("hypothesis", "numpy", "pydantic", "rich.console", "safetensors.torch", "torch", "typer", "zstandard")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One fault. `was`: a line of `file` without its indentation; behind the line that has `near`, where that is not
    empty, the first such one, else the only one. `tests`: files that can see it, likely ones first.
    """

    id: str
    room: str
    file: str
    was: str
    now: str
    fault: str
    tests: tuple[str, ...]
    near: str = ""


def mutants(data: Path = DATA) -> list[Mutant]:
    """All, in the order of the file. The tests are a room's; a fault's `first` is the likely one of them."""
    found = []
    for room, content in tomllib.loads(data.read_text(encoding="utf-8")).items():
        for each in content["mutants"]:
            at = content["tests"].index(each.pop("first", content["tests"][0]))
            tests = (content["tests"][at], *content["tests"][:at], *content["tests"][at + 1 :])
            found.append(Mutant(room=room, tests=tests, **each))
    return found


def planted(mutant: Mutant, text: str) -> str:
    """The file's `text` with the fault. Errors: ValueError, one sentence, where its place is not found, or not one."""
    lines = text.splitlines(keepends=True)
    nears = [number for number, line in enumerate(lines) if mutant.near in line]
    found = [number for number, line in enumerate(lines) if line.strip() == mutant.was and number >= (nears or [0])[0]]
    for what, places in ((mutant.near, nears), (mutant.was, found[:1] if mutant.near else found)):
        if what and len(places) != 1:
            raise ValueError(f"{mutant.id}: {mutant.file} has {what!r} {len(places)} times, and not once")
    indent = lines[found[0]].partition(mutant.was)[0]
    lines[found[0]] = "".join(f"{indent}{line}\n" for line in mutant.now.splitlines())
    return "".join(lines)


def objections(found: list[Mutant], root: Path = ROOT) -> list[str]:
    """What is wrong with the data; nothing, where all can be planted."""
    ids = Counter(one.id for one in found)
    wrong = [f"{name}: there are {count} of it" for name, count in ids.items() if count > 1]
    for one in found:
        wrong += [f"{one.id}: there is no {test}" for test in one.tests if not list(root.glob(test))]
        try:
            text = (root / one.file).read_text(encoding="utf-8")
            if ast.dump(ast.parse(planted(one, text))) == ast.dump(ast.parse(text)):
                wrong.append(f"{one.id}: what is planted says the same")
        except (OSError, ValueError, SyntaxError) as error:
            wrong.append(str(error) if isinstance(error, ValueError) else f"{one.id}: {error}")
    return wrong


class Copy:
    """The tracked files in a folder of their own, with an interpreter that imports no others of ours."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.python = folder / "tree", folder / "venv" / "bin" / "python"
        words = ["git", "-C", str(ROOT), "ls-files", "-z"]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.tree / name)
        venv.EnvBuilder(symlinks=True).create(folder / "venv")
        packages = [path for path in sys.path if Path(path).name == "site-packages"]
        (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        # What stands in such a file is put on the path as it is: .pth files over there, ours among them, are not read.
        (site / "copy.pth").write_text("\n".join([str(self.tree), *packages]) + "\n", encoding="utf-8")
        probe = [str(self.python), "-c", "import anchorleg, pydantic; print(anchorleg.__file__)"]
        told = subprocess.run(probe, cwd=folder, capture_output=True, text=True, check=True).stdout
        assert Path(told.strip()).is_relative_to(self.tree), f"it imports {told}"
        self._moment = int(time.time())

    @contextlib.contextmanager
    def having(self, mutant: Mutant) -> Iterator[None]:
        """The fault is in the tree."""
        path = self.tree / mutant.file
        before = path.read_text(encoding="utf-8")
        try:
            self._write(path, planted(mutant, before))
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        """With a time of its own, to the second: bytecode of what stood there before has another one."""
        path.write_text(text, encoding="utf-8")
        self._moment += 2
        os.utime(path, (self._moment, self._moment))

    def tested(self, tests: list[str], without: set[str], timeout_s: float) -> tuple[str, str]:
        """(outcome, first failing test). Errors: SystemExit where pytest cannot run them."""
        words = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not long and not gpu", "--hypothesis-seed=0"]
        words += [f"--timeout={timeout_s:g}", *(f"--deselect={name}" for name in sorted(without)), *tests]
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            child = os.fork()
            if child == 0:
                self._be_pytest(words, output.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            told = output.read()
        if code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return MISSED, ""
        failed = _FAILED.search(told)
        if code > 0 and failed is None:
            sys.exit(f"pytest cannot run {' '.join(tests)}:\n{told}")
        outcome = TIMEOUT if "from pytest-timeout" in told else CAUGHT
        return outcome, failed[1] if failed else f"signal {-code}"

    def _be_pytest(self, words: list[str], output: int) -> NoReturn:
        """In a fork: it has the packages that take long to load, and nothing of ours."""
        code: int = pytest.ExitCode.INTERNAL_ERROR
        try:
            for file, number in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
                os.dup2(file, number)
            os.chdir(self.tree)
            os.environ["PATH"] = f"{self.python.parent}:{os.environ['PATH']}"
            sys.path[:] = [str(self.tree), *(path for path in sys.path if Path(path) not in {ROOT, DATA.parent})]
            sys.executable, sys.argv, sys.modules["__main__"] = str(self.python), ["pytest"], ModuleType("__main__")
            found = importlib.import_module("anchorleg").__file__
            assert Path(found or "").is_relative_to(self.tree), f"it imports {found}"
            code = pytest.main(words)
        finally:
            sys.stdout.flush()
            os._exit(code)


def tried(copy: Copy, mutant: Mutant, unsound: set[str], timeout_s: float) -> tuple[str, str]:
    """(outcome, first failing test): the likely file by itself, which is all that most faults need."""
    first, *others = [
        str(path.relative_to(copy.tree)) for test in mutant.tests for path in sorted(copy.tree.glob(test))
    ]
    with copy.having(mutant):
        found = copy.tested([first], unsound, timeout_s)
        return copy.tested(others, unsound, timeout_s) if found[0] == MISSED and others else found


def failing_anyway(copy: Copy, names: set[str], timeout_s: float) -> list[str]:
    """Those of the tests that fail without any fault: what they saw is none."""
    left, found = sorted(name for name in names if "::" in name), list[str]()
    while left and (outcome := copy.tested(left, set(found), timeout_s))[0] == CAUGHT:
        found.append(outcome[1])
        left = [name for name in left if not name.startswith(outcome[1])]
    return found


def by_room(rows: list[list[str]]) -> list[tuple[str, int, int, int]]:
    """Of each room (room, faults, caught, missed), and of all."""
    rooms = [*dict.fromkeys(row[1] for row in rows), "all"]
    of = {room: [row[2] for row in rows if room in {row[1], "all"}] for room in rooms}
    return [(room, len(own), len(own) - own.count(MISSED), own.count(MISSED)) for room, own in of.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--out", default="mutants")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    for flag in ("--resume", "--list", "--check"):
        parser.add_argument(flag, action="store_true")
    told = parser.parse_args()
    every = mutants()
    chosen = [one for one in every if not told.only or {one.id, one.room} & set(told.only)]
    if told.list:
        print("\n".join(f"{one.id}: {one.fault} ({one.file})" for one in chosen))
        return
    if wrong := objections(chosen):
        sys.exit("\n".join(wrong))
    if told.check:
        sys.exit(print(f"{len(chosen)} faults in {len({one.room for one in chosen})} rooms can be planted"))
    path, order = figures.written(told.out), {one.id: number for number, one in enumerate(every)}
    rows = {row[0]: row for row in (figures.read(path)[1:] if path.exists() else []) if row[0] in order}
    if not told.resume:
        rows = {name: row for name, row in rows.items() if name not in {one.id for one in chosen}}
    unsound: set[str] = set()
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in LOADED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        while True:
            for one in (one for one in chosen if one.id not in rows):
                began = time.monotonic()
                outcome, failed = tried(copy, one, unsound, told.timeout)
                rows[one.id] = [one.id, one.room, outcome, failed, f"{time.monotonic() - began:.0f}"]
                print(f"{outcome}\t{one.id}\t{rows[one.id][4]} s\t{failed or one.fault}", flush=True)
                figures.save(told.out, HEAD, sorted(rows.values(), key=lambda row: order[row[0]]))
            wrong = failing_anyway(copy, {rows[one.id][3] for one in chosen}, told.timeout)
            if not wrong:
                break
            print("\n".join(f"{name} fails without a fault, too: it is left out" for name in wrong), flush=True)
            unsound |= set(wrong)
            rows = {name: row for name, row in rows.items() if row[3] not in unsound}
    table = by_room(sorted(rows.values(), key=lambda row: order[row[0]]))
    print("\n".join(f"{room}: {caught} of {count} caught, {missed} missed" for room, count, caught, missed in table))
    if len(rows) == len(every):
        figures.save(f"{told.out}_rooms", ("room", "faults", "caught", "missed"), table)


if __name__ == "__main__":
    main()
