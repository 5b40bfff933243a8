"""MT10 itself, through the command line: handed over and killed in mid-episode, and the bits are the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from slot_digest import gaps, slot_digest

from anchorleg.job import HANDED_OVER, attempt_numbers

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
HANDING_OVER = str(REPOSITORY / "tests" / "support" / "handing_over.py")
#: Small nets, short stretches, episodes that no interruption meets at their end. Ten environments step 150 times.
SETTINGS = {
    "preset": "debug",
    "total_steps": 1500,
    "random_steps": 200,
    "actor_hidden": "[16]",
    "critic_hidden": "[16]",
    "batch_size": 20,
    "buffer_size": 1000,
    "checkpoint_interval": 150,
    "metrics_interval": 70,
    "horizon": 37,
    "evaluation_goals": 0,
}


def run(run_dir, *program, **fields):
    """The exit code of an attempt, by default of `trainer` itself."""
    command = [sys.executable, *(program or ("-m", "trainer")), "train", "--run-dir", str(run_dir)]
    for name, value in {**SETTINGS, **fields}.items():
        command += ["--set", f"{name}={value}"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=WORK_S,
        check=False,
    )  # fmt: skip
    assert done.returncode in {0, HANDED_OVER, -signal.SIGKILL}, done.stderr
    return done.returncode


def complete(run_dir, **fields):
    assert run(run_dir, **fields) == 0
    return slot_digest(run_dir / "slots/0")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return complete(tmp_path_factory.mktemp("uninterrupted"))


def same(digest, reference):
    """Equal, and no step of the rows is missing."""
    assert gaps(digest["metrics"]) == []
    return digest == reference


@pytest.mark.long
def test_a_hand_over_and_a_kill_in_the_middle_of_episodes_change_no_bit_of_mt10(tmp_path, uninterrupted):
    assert run(tmp_path, HANDING_OVER, "28") == HANDED_OVER
    assert run(tmp_path, HANDING_OVER, "40:SIGKILL:0.01") == -signal.SIGKILL
    assert same(complete(tmp_path), uninterrupted)
    assert attempt_numbers(tmp_path / "slots/0") == [0, 1, 2]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_kills_at_random_moments_change_no_bit_of_mt10(tmp_path, seed):
    numbers = random.Random(seed)
    reference = complete(tmp_path / "reference", seed=seed)
    run_dir = tmp_path / "killed"
    for _ in range(3):
        at = f"{numbers.randrange(1, 40)}:SIGKILL:{numbers.uniform(0, 0.02)}"
        assert run(run_dir, HANDING_OVER, at, seed=seed) == -signal.SIGKILL
    assert same(complete(run_dir, seed=seed), reference)
