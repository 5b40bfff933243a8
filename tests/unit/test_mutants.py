"""The faults that `bench/mutants.py` plants: each can still be planted, and the tests that are to see it are there."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return runpy.run_path(str(ROOT / "bench" / "mutants.py"))


@pytest.mark.long
def test_each_fault_can_be_planted_and_its_tests_are_there(script: dict[str, Any]) -> None:
    """A line that has changed takes its fault along: say in bench/mutants.toml what it is now."""
    assert script["objections"](script["mutants"]()) == []


def test_every_room_has_its_faults(script: dict[str, Any]) -> None:
    rooms = Counter(one.room for one in script["mutants"]())
    assert rooms.total() >= 150
    assert {room: count for room, count in rooms.items() if not 5 <= count <= 12} == {}


def made(script: dict[str, Any], **values: Any) -> Any:
    usual = {"id": "a", "room": "r", "file": "f.py", "was": "go()", "now": "pass", "fault": "it stays", "tests": ("t",)}
    return script["Mutant"](**{**usual, **values})


def test_a_fault_takes_the_place_of_one_line(script: dict[str, Any]) -> None:
    text = "def one():\n    go()\n\n\ndef two():\n    if one:\n        go()\n"
    with pytest.raises(ValueError, match=r"^a: f.py has 'go\(\)' 2 times, and not once$"):
        script["planted"](made(script), text)
    with pytest.raises(ValueError, match=r"has 'def three' 0 times, and not once$"):
        script["planted"](made(script, near="def three"), text)
    found = script["planted"](made(script, near="def two", now="stay()\nwait()"), text)
    assert found == "def one():\n    go()\n\n\ndef two():\n    if one:\n        stay()\n        wait()\n"


def test_what_is_wrong_with_the_data_is_told(script: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("go()\n")
    (tmp_path / "t").touch()
    told = ({"now": "pass"}, {"now": "go( )"}, {"now": "if"}, {"file": "g.py"}, {"tests": ("u",)})
    (), (same,), (torn,), (absent,), (untested,) = (
        script["objections"]([made(script, **each)], tmp_path) for each in told
    )
    assert same == "a: what is planted says the same"
    assert "invalid syntax" in torn
    assert "No such file" in absent
    assert untested == "a: there is no u"
    assert script["objections"]([made(script), made(script)], tmp_path) == ["a: there are 2 of it"]


def test_the_table_has_each_room_and_all(script: dict[str, Any]) -> None:
    rows = [["a", "one", "caught", "t", "1"], ["b", "one", "missed", "", "1"], ["c", "two", "timeout", "", "9"]]
    assert script["by_room"](rows) == [("one", 2, 1, 1), ("two", 1, 1, 0), ("all", 3, 2, 1)]
