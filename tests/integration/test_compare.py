"""`trainer compare` as a user has it: algorithms trained side by side, gone on with, and put into one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S, WORK_S
from relay import NewRelay, Relay

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
@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--algorithms", "ppo,ppo2"], "compare.unknown-algorithm"),
        (["--algorithms", "ppo,ppo"], "compare.algorithms-once"),
        (["--algorithms", "arm-ppo,a2c", "--preset", "arm-a2c"], "compare.two-presets"),
        (["all/ppo-0", "--steps", "600"], "compare.options-of-runs"),
    ],
)
def test_what_is_asked_wrongly_is_said_in_a_sentence(tmp_path: Path, words: list[str], wrong: str) -> None:
    done = compare(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"[{wrong}]" in done.stderr
    assert not (tmp_path / "all").exists()


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


TRAINING = {
    "preset": "arm-ppo",
    "network": {"actor_hidden": [8], "critic_hidden": [8]},
    "horizon": 20,
    "num_envs": 4,
    "total_steps": 400,
    "checkpoint_interval": 200,
    "evaluation_interval": 200,
    "evaluation_goals": 2,
    "metrics_interval": 200,
    "num_workers": 0,
}


def compared(relay: Relay) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainer", "compare", str(relay.run_dir), "--json"],
        cwd=relay.folder, env=relay.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_experiments_of_a_run_are_contenders_by_algorithm_and_by_what_differs(new_relay: NewRelay) -> None:
    ppo = [{"algorithm": {"name": "ppo", "gamma": gamma}, "seed": seed} for gamma in (0.9, 0.95) for seed in (0, 1)]
    relay = new_relay(
        command=None,
        training=TRAINING,
        experiments=[*ppo, {"algorithm": "a2c", "seed": 3, "name": "plain", "priority": 2}],
        slurm={"max_jobs": 2, "time_limit": "1:00:00"},
    )
    done = relay.run("start", timeout_s=WORK_S)
    assert done.code == 0, done.words

    told = compared(relay)

    assert told.returncode == 0, told.stderr
    found = {one["algorithm"]: one for one in json.loads(told.stdout)["contenders"]}
    assert {name: one["seeds"] for name, one in found.items()} == {
        "ppo gamma=0.9": [0, 1],
        "ppo gamma=0.95": [0, 1],
        "a2c": [3],
    }
    assert {rows[-1]["step"] for one in found.values() for rows in one["evaluations"]} == {400}
