"""What the house may weigh: lines a room, files, classes that inherit, and patches in tests.

A room that got smaller gets a smaller number here. A larger one is a decision: say in the commit what it buys.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("anchorleg", "orchestrator", "trainer", "syncd", "viewer")
#: What counts as product: not what others wrote (`viewer/static/vendor`).
PRODUCT_ENDS = {".py", ".c", ".h", ".js", ".css", ".html"}
#: Room, as folders and files → the most lines of Python.
ROOMS = {
    "anchorleg": 2_643,
    "orchestrator/*.py": 3_051,
    "orchestrator/decisions": 2_943,
    "orchestrator/run orchestrator/executors": 3_915,
    "orchestrator/hosts orchestrator/screens": 3_415,
    "orchestrator/doctor orchestrator/commands orchestrator/integrations": 2_638,
    "syncd": 11_166,
    "viewer": 4_701,
    "trainer/envs": 6_847,
    "trainer/algorithms": 4_598,
    "trainer/nets trainer/buffers": 4_190,
    "trainer/training trainer/checkpoints trainer/history": 4_793,
    "trainer/sharing trainer/actors trainer/live": 4_996,
    "trainer/config": 2_457,
    "trainer/demos": 1_583,
    "bench": 6_395,
}
MOST_LINES, MOST_FILES = 75_426, 428
MOST_TEST_LINES = 69_260
#: Files below 60 lines, without those that only say what a folder is.
SMALL, MOST_SMALL = 60, 40
#: `monkeypatch.setattr` in the unit tests of each package.
MOST_PATCHES = 60
#: A class of ours may inherit from one class of ours. These are trees by nature: errors, and settings (pydantic).
TREES = ("Error", "Settings", "BaseModel", "Checked")


def files_of(where: str, ends: Iterable[str] = (".py",)) -> list[Path]:
    """Of a folder with all below it, or of a pattern."""
    found = ROOT.glob(where) if "*" in where else (ROOT / where).rglob("*")
    return sorted(path for path in found if path.suffix in set(ends) and "vendor" not in path.parts)


def lines_of(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


PRODUCT = [path for package in PACKAGES for path in files_of(package, PRODUCT_ENDS)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_stays_within_its_budget(room: str) -> None:
    assert lines_of(path for part in room.split() for path in files_of(part)) <= ROOMS[room]


def test_the_whole_stays_within_its_budget() -> None:
    python = [path for path in PRODUCT if path.suffix == ".py"]
    assert (lines_of(PRODUCT) <= MOST_LINES, len(python) <= MOST_FILES) == (True, True)
    assert lines_of(files_of("tests")) <= MOST_TEST_LINES
    small = [path for path in python if path.name not in {"__init__.py", "__main__.py"} and lines_of([path]) < SMALL]
    assert len(small) <= MOST_SMALL


@pytest.mark.parametrize("package", PACKAGES)
def test_few_tests_patch_what_is_inside(package: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in files_of(f"tests/unit/{package}")]
    assert sum(text.count("monkeypatch.setattr") for text in texts) <= MOST_PATCHES


def test_no_class_inherits_from_one_that_inherits() -> None:
    bases: dict[str, list[str]] = {}
    for path in PRODUCT:
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]

    def line(name: str) -> list[str]:
        return [name, *(each for base in bases.get(name, []) if base != name for each in line(base))]

    lines = {name: line(name) for name in bases if not any(each.endswith(TREES) for each in line(name))}
    assert [each for each in lines.values() if len([name for name in each if name in bases]) > 2] == []
