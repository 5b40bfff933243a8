"""Benchmarks dirty no checkout: their figures go where git does not look, unless somebody says otherwise."""

from __future__ import annotations

import csv
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from daemons import PATIENCE_S

BENCH = Path(__file__).resolve().parents[2] / "bench"


def figures_of(folder: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """bench/figures.py as a script in `folder` sees it that was called with `words`."""
    folder.mkdir(exist_ok=True)
    (folder / "figures.py").write_text((BENCH / "figures.py").read_text())
    monkeypatch.setattr(sys, "argv", ["tick.py", *words])
    spec = importlib.util.spec_from_file_location("figures_under_test", folder / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures_go_into_the_ignored_folder_unless_they_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tmp_path / "bench"
    committed, own = bench / "results" / "tick.csv", bench / "out" / "tick.csv"
    figures_of(bench, "--replace", monkeypatch=monkeypatch).save("tick", ["slots"], [[4]])
    assert (committed.read_text(), own.exists()) == ("slots\n4\n", False)

    figures = figures_of(bench, "125", monkeypatch=monkeypatch)
    assert figures.newest("tick") == committed
    figures.save("tick", ["slots"], [[5]])
    assert (committed.read_text(), own.read_text()) == ("slots\n4\n", "slots\n5\n")
    assert figures.read(figures.newest("tick")) == [["slots"], ["5"]]
    assert figures.read(figures.committed("tick")) == [["slots"], ["4"]]

    replacing = figures_of(bench, "--replace", "125", monkeypatch=monkeypatch)
    assert sys.argv == ["tick.py", "125"]  # the script's own words
    assert replacing.newest("tick") == committed


def test_figures_that_did_not_change_are_of_the_machine_that_made_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that has nothing left to run writes what is there already, on whatever machine."""
    bench = tmp_path / "bench"

    def save(machine: str, rows: list[list[int]], *words: str) -> dict[str, str]:
        figures = figures_of(bench, *words, monkeypatch=monkeypatch)
        monkeypatch.setattr(figures, "this_machine", lambda: machine)
        figures.save("tick", ["slots"], rows)
        return figures.measured_on(bench / ("results" if words else "out"))

    first = save("a server", [[4]], "--replace")
    assert first["tick"].startswith("a server, ")
    assert save("a laptop", [[4]]) == first
    assert save("a laptop", [[4]], "--replace") == first
    assert save("a laptop", [[4], [5]])["tick"].startswith("a laptop, ")


def test_figures_tell_the_commit_of_the_code_and_whether_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tmp_path / "bench"
    figures = figures_of(bench, monkeypatch=monkeypatch)
    assert figures.this_code() == ""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-C", str(bench), *who, *words], check=True, timeout=PATIENCE_S)
    (bench / "table.csv").write_text("1")
    head = figures.this_code()
    assert re.fullmatch("commit [0-9a-f]{8}", head)
    (bench / "figures.py").write_text("changed")
    assert figures.this_code() == f"{head} and changes"


@pytest.mark.parametrize(
    "script",
    sorted(set(BENCH.glob("*.py")) - {BENCH / "figures.py", BENCH / "learners.py"}),
    ids=lambda path: path.name,
)
def test_no_benchmark_writes_figures_by_itself(script: Path) -> None:
    code = script.read_text()
    assert "csv.writer" not in code
    assert '"results"' not in code
    assert '"bench/results' not in code
    assert "figures." in code


def test_the_committed_figures_are_whole() -> None:
    for path in (BENCH / "results").glob("*.csv"):
        with open(path, newline="") as file:
            head, *rows = csv.reader(file)
        assert rows, path
        assert {len(row) for row in rows} == {len(head)}, path
