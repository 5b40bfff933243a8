"""MT10 itself, through the command line: handed over and killed in mid-episode, and the bits are the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from slot_digest import gaps, slot_digest

from anchorleg.job import HANDED_OVER, attempt_numbers
from trainer.history.journal import METRICS
from trainer.history.read import lines

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
#: Small nets, short stretches, episodes that no interruption meets at their end.
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


def start(run_dir, **fields):
    command = [sys.executable, "-m", "trainer", "train", "--run-dir", str(run_dir)]
    for name, value in {**SETTINGS, **fields}.items():
        command += ["--set", f"{name}={value}"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process):
    _, told = process.communicate(timeout=WORK_S)
    assert process.returncode in {0, HANDED_OVER, -signal.SIGKILL}, told
    return process.returncode


def steps_of_newest(run_dir):
    numbers = attempt_numbers(run_dir / "slots/0")
    rows = list(lines(run_dir / "slots/0/attempts" / str(numbers[-1]) / METRICS)) if numbers else []
    return len(numbers), rows[-1]["to"] if rows else 0


def interrupt(run_dir, number, attempt, step, **fields):
    """Start an attempt and send `number` once it has written a row at or past `step`."""
    process = start(run_dir, **fields)
    deadline = time.monotonic() + WORK_S
    while time.monotonic() < deadline and process.poll() is None:
        if steps_of_newest(run_dir) >= (attempt + 1, step):
            process.send_signal(number)
            break
        time.sleep(0.002)
    return finish(process)


def complete(run_dir, **fields):
    assert finish(start(run_dir, **fields)) == 0
    return slot_digest(run_dir / "slots/0")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return complete(tmp_path_factory.mktemp("uninterrupted"))


def same(digest, reference):
    """Equal, and no step of the rows is missing."""
    assert gaps(digest["metrics"]) == []
    return digest == reference


def test_a_hand_over_and_a_kill_in_the_middle_of_episodes_change_no_bit_of_mt10(tmp_path, uninterrupted):
    assert interrupt(tmp_path, signal.SIGUSR2, 0, 280) == HANDED_OVER
    assert interrupt(tmp_path, signal.SIGKILL, 1, 700) == -signal.SIGKILL
    assert same(complete(tmp_path), uninterrupted)
    assert attempt_numbers(tmp_path / "slots/0") == [0, 1, 2]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_three_hand_overs_change_no_bit_of_mt10(tmp_path, seed):
    numbers = random.Random(seed)
    reference = complete(tmp_path / "reference", seed=seed)
    run_dir, at = tmp_path / "interrupted", 0
    for attempt in range(3):
        at += numbers.randrange(100, 400)
        number = numbers.choice([signal.SIGUSR2, signal.SIGTERM, signal.SIGINT])
        assert interrupt(run_dir, number, attempt, at, seed=seed) == HANDED_OVER
    assert same(complete(run_dir, seed=seed), reference)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_kills_at_random_moments_change_no_bit_of_mt10(tmp_path, seed):
    numbers = random.Random(seed)
    reference = complete(tmp_path / "reference", seed=seed)
    run_dir = tmp_path / "killed"
    for attempt in range(3):
        assert interrupt(run_dir, signal.SIGKILL, attempt, numbers.randrange(70, 1300), seed=seed) == -signal.SIGKILL
    assert same(complete(run_dir, seed=seed), reference)


@pytest.mark.long
def test_the_number_of_workers_changes_no_bit_but_its_own_name(tmp_path, uninterrupted):
    def without_numeric(digest):
        (tensors, numbers), others = digest["parts"]["run"], digest["parts"]
        run = (tensors, {name: part for name, part in numbers.items() if name != "numeric"})
        return {**digest, "parts": {**others, "run": run}}

    assert same(without_numeric(complete(tmp_path, num_workers=3)), without_numeric(uninterrupted))
