"""Benchmarks dirty no checkout: their figures go where git does not look, unless somebody says otherwise."""

from __future__ import annotations

import csv
import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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


def test_git_ignores_the_folder(tmp_path: Path) -> None:
    """In a checkout of our own: git does not look into one of somebody else."""
    (tmp_path / ".gitignore").write_text((BENCH.parent / ".gitignore").read_text())
    for command in (["git", "init", "-q"], ["git", "check-ignore", "-q", "bench/out/tick.csv"]):
        assert subprocess.run(command, cwd=tmp_path, timeout=PATIENCE_S, check=False).returncode == 0


def test_the_committed_figures_are_whole() -> None:
    for path in (BENCH / "results").glob("*.csv"):
        with open(path, newline="") as file:
            head, *rows = csv.reader(file)
        assert rows, path
        assert {len(row) for row in rows} == {len(head)}, path


def test_what_is_committed_while_a_benchmark_runs_is_not_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, timeout=PATIENCE_S)

    git("init")
    git("commit", "--allow-empty", "-m", "measured")
    figures = figures_of(tmp_path / "bench", monkeypatch=monkeypatch)
    before = figures.this_code()
    git("commit", "--allow-empty", "-m", "later")
    figures.save("tick", ["slots"], [[4]])
    assert before.startswith("commit ")
    assert before != figures.this_code()
    assert figures.measured_on(tmp_path / "bench" / "out")["tick"].endswith(before)


def test_processor_time_has_that_of_threads_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = figures_of(tmp_path / "bench", monkeypatch=monkeypatch)

    def work() -> None:
        while time.thread_time() < 0.05:
            pass

    before = figures.processor_s(os.getpid())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert figures.processor_s(os.getpid()) - before >= 0.05


def test_a_process_that_ended_takes_no_figures_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = figures_of(tmp_path / "bench", monkeypatch=monkeypatch)
    command = [sys.executable, "-c", "print(); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it has used some by then, more than this process uses meanwhile
        before = figures.processor_s_of([child.pid, os.getpid()])
        assert before[child.pid] > 0
        child.communicate(b"\n", timeout=PATIENCE_S)
    assert figures.processor_s_since(before) >= 0
    with pytest.raises(OSError, match=r"Invalid argument|No such process"):
        figures.processor_s(child.pid)
    assert list(figures.processor_s_of([child.pid, os.getpid()])) == [os.getpid()]


def test_ways_take_turns_and_ratios_are_within_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = figures_of(tmp_path / "bench", "7", monkeypatch=monkeypatch)
    made: list[str] = []

    def way(name: str, seconds: float) -> Callable[[], float]:
        return lambda: seconds * (made.append(name) or len(made))  # slower from turn to turn

    found = figures.by_turns({"one": way("one", 1.0), "other": way("other", 2.0)}, rounds=3, warm=1)
    assert made == ["one", "other"] * 4
    assert found == {"one": [3.0, 5.0, 7.0], "other": [8.0, 12.0, 16.0]}
    assert figures.ratio(found["other"], found["one"]) == 12 / 5
    assert figures.late([5, 1, 4, 2, 3]) == (3, 4, 5)
    assert (figures.number(1, 2.0), figures.number(2, 3)) == (7.0, 3)
