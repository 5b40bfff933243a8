"""`trainer compare` as a user has it: algorithms trained side by side, gone on with, and put into one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S, WORK_S

from anchorleg.job import Job
from trainer.machine import launching

pytest.importorskip("torch")

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).parents[2]
SECTION = {
    "env": {"name": "loud:Points"},
    "rollout_steps": 32,
    "checkpoint_interval": 200,
    "evaluation_interval": 200,
    "metrics_interval": 200,
    "evaluation_goals": 2,
    "evaluation_unseen_goals": 0,
    "publish_interval": 0,
}


#: A suite that prints, in Python and below it, as banners of libraries are printed.
LOUD = """
import os
import anchorleg_toys.points

class Points(anchorleg_toys.points.Points):
    def __init__(self, *words, **more):
        print("a banner")
        os.write(1, b"and another one")
        super().__init__(*words, **more)
"""


def compare(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "section.json").write_text(json.dumps(SECTION))
    (folder / "loud.py").write_text(LOUD)
    (folder / "trainer.py").write_text("raise SystemExit(9)  # a file of the user's own\n")
    return subprocess.run(
        [sys.executable, "-P", "-m", "trainer", "compare", "-c", "section.json", "--run-dir", "all", *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/plugin'}:{folder}", **environment},
        capture_output=True, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_algorithms_are_trained_compared_and_not_trained_again(tmp_path: Path) -> None:
    asked = ("--algorithms", "ppo,a2c", "--steps", "600", "--seeds", "1")
    job = Job(tmp_path / "run", 0, 0, hand_over_file=tmp_path / "asked", scratch=tmp_path, run_id="the-jobs-run")
    first = compare(tmp_path, *asked, "--json", **launching._described(job, tmp_path / "asked"))
    assert first.returncode == 0, first.stderr
    assert "a banner\n" in first.stderr
    assert not job.run_dir.exists(), "each contender trains in a folder of its own, also inside a job"
    told = json.loads(first.stdout)
    assert {one["algorithm"] for one in told["contenders"]} == {"ppo", "a2c"}
    assert {one["evaluations"][0][-1]["step"] for one in told["contenders"]} == {603}
    assert all(isinstance(point["return"], float) for one in told["contenders"] for point in one["evaluations"][0])
    assert not (tmp_path / "compare.png").exists()

    attempts = sorted(tmp_path.glob("all/*/slots/0/attempts/*"))
    assert len(attempts) == 2
    again = compare(tmp_path, *asked)
    assert again.returncode == 0, again.stderr
    for word in ("algorithm\tseeds", "ppo\t1", "a2c\t1", "is better", "the picture: compare.png"):
        assert word in again.stdout
    assert (tmp_path / "compare.png").stat().st_size > 10_000
    rows = [len((attempt / "metrics.jsonl").read_text().splitlines()) for attempt in attempts]
    assert rows == [3, 3]
    other = subprocess.run(
        [sys.executable, "-P", "-m", "trainer", "compare", "all/ppo-0", "all/a2c-0", "--json"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/plugin'}:{tmp_path}"}, capture_output=True, text=True,
        timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert json.loads(other.stdout)["contenders"] == told["contenders"]


@pytest.mark.long
def test_what_is_asked_wrongly_is_said_in_a_sentence(tmp_path: Path) -> None:
    unknown = compare(tmp_path, "--algorithms", "ppo,ppo2")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "there is no algorithm and no preset 'ppo2'; did you mean 'ppo'" in unknown.stderr.replace('"', "'")
    twice = compare(tmp_path, "--algorithms", "ppo,ppo")
    assert twice.returncode == 2
    assert "give each name once" in twice.stderr
    both = compare(tmp_path, "--algorithms", "arm-ppo,a2c", "--preset", "arm-a2c")
    assert "arm-ppo is a preset; leave out --preset" in both.stderr
    trained = compare(tmp_path, "all/ppo-0", "--steps", "600")
    assert trained.returncode == 2
    assert "--steps, --config, --run-dir: the runs that are named were trained" in trained.stderr
    assert not (tmp_path / "all").exists()

    place = tmp_path / "all/ppo-0/slots/0"
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    begun = compare(tmp_path, "--algorithms", "ppo")
    assert begun.returncode == 2
    assert "was begun with other settings" in begun.stderr


@pytest.mark.long
def test_a_training_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    place = tmp_path / "all/ppo-0/slots/0/attempts"
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    failed = compare(tmp_path, "--algorithms", "ppo", "--seeds", "1")
    assert failed.returncode == 1
    assert "ppo-0 failed (exit code" in failed.stderr
    assert "train.log" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.long
def test_presets_of_one_algorithm_are_told_apart_and_trained_in_one_environment(tmp_path: Path) -> None:
    small = {"horizon": 20, "rollout_steps": 32, "evaluation_goals": 2, "evaluation_interval": 0}
    settings = [f"--set={field}={value}" for field, value in small.items()]

    def compared(algorithms: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = ("--algorithms", algorithms, "--steps", "400", "--seeds", "1", "--json", *settings, *more)
        return subprocess.run(
            [sys.executable, "-m", "trainer", "compare", *words], cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            timeout=WORK_S, check=False,
        )  # fmt: skip

    refused = compared("arm-ppo,cartpole-ppo")
    assert refused.returncode == 2
    assert "arm-ppo and cartpole-ppo are of different environments (env arm → gymnasium)" in refused.stderr
    assert not (tmp_path / "runs").exists()
    done = compared("arm-ppo,ppo,arm-a2c", "--set", "env=arm", "--set", "num_envs=8")
    assert done.returncode == 0, done.stderr
    assert {one["algorithm"] for one in json.loads(done.stdout)["contenders"]} == {
        "ppo (arm-ppo)",
        "ppo (guide)",
        "a2c",
    }
