"""The benches of an hour and of a GPU, as far as they can be told without either."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from daemons import WORK_S

pytestmark = pytest.mark.trainer
BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Imports a benchmark, whose figures go to a folder of the test."""

    def imported(name):
        monkeypatch.setattr(sys, "argv", [f"{name}.py"])
        monkeypatch.syspath_prepend(str(BENCH))
        found = importlib.import_module(name)
        monkeypatch.setattr(found.figures, "OWN", tmp_path / "own")
        monkeypatch.setattr(found.figures, "COMMITTED", tmp_path / "committed")
        monkeypatch.setattr(found.figures, "FOLDER", tmp_path / "bench")
        return found

    return imported


def test_claims_are_judged_by_the_seeds_that_both_sides_have_from_one_machine(script):
    hour = script("hour")
    lines = []
    for seed in range(3):
        for side, points in (
            ("ours", [(1000, 0.2 + seed / 100), (5000, 0.6 + seed / 100)]),
            ("stable-baselines3", [(1000, 0.3 - seed / 100)]),
        ):
            lines += [[side, str(seed), "amd", "s", "60", str(step), *["0"] * 10, str(mean)] for step, mean in points]
    other = [["ours", "7", "amd", "s", "60", "1", *["0"] * 10, "0"]]
    other += [
        [side, "8", where, "s", "60", "1", *["0"] * 10, "0"]
        for side, where in (("ours", "amd"), ("stable-baselines3", "intel"))
    ]
    found = {name: verdict for name, verdict, *_ in hour.summary([*lines, *other])}
    assert found["seeds of both"] == "3"
    assert found["their success after the hour"] == "0.610"
    assert found["1: at least 0.5 (all of ours)"] == "refuted"  # 0.366: with seeds 7 and 8, which nobody else has
    assert found["2: more in the same hour"] == "shown"
    assert found["3: not worse by 0.05 at equal steps"] == "not shown"  # 0.08 less at 1,000 steps
    few = [[*row[:2]] for row in hour.summary(lines[:6])]  # two seeds of three
    assert few[2:5] == [
        ["1: at least 0.5 (all of ours)", "shown"],
        ["2: more in the same hour", "open"],
        ["3: not worse by 0.05 at equal steps", "open"],
    ]
    assert hour.summary(lines)[5:] == [["steps compared in claim 3", "1,000", "1,000", ""]]
    late = [[*row[:5], "1001", *row[6:]] if row[0] == "ours" and row[5] == "1000" else row for row in lines]
    verdicts = {name: verdict for name, verdict, *_ in hour.summary(late)}
    assert verdicts["3: not worse by 0.05 at equal steps"] == "not told"  # of ours nothing is known so early


@pytest.mark.long
def test_the_bench_of_a_gpu_goes_through_all_of_its_code_on_a_cpu(script, tmp_path):
    presets = script("gpu").PRESETS
    folder = tmp_path / "bench"
    folder.mkdir()
    for name in ("gpu.py", "figures.py"):
        (folder / name).write_text((BENCH / name).read_text())
    done = subprocess.run(
        [sys.executable, str(folder / "gpu.py"), "--small"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = {path.stem: path.read_text().splitlines() for path in (folder / "out").glob("gpu_small*.csv")}
    assert [len(found["gpu_small"]), len(found["gpu_small_resume"])] == [1 + 3 * len(presets), 2]
    assert found["gpu_small_resume"][1].endswith(",2,same")
    assert len(found["gpu_small_curve"]) > 1
