"""docs/environments.md, the arm: every block of it runs, shortened."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S
from needs import is_missing

pytest.importorskip("mujoco")
pytest.importorskip("stable_baselines3")
pytest.importorskip("torch")

from trainer.config.suites import Arm
from trainer.errors import ConfigError
from trainer.machine import drawing

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/environments.md").read_text().split("## Train on the arm")[1].split("\n## ")[0]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
#: Instead of what the page asks for.
SHORT = {"total_steps": "400", "rollout_steps": "20", "evaluation_goals": "2", "evaluation_unseen_goals": "0"}


def ran(*command, folder):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=WORK_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_blocks():
    assert [kind for kind, _ in BLOCKS] == ["json", "bash", "python", "python", "python"]


@pytest.mark.long
@pytest.mark.parametrize("block", PYTHON, ids=["gymnasium", "ppo", "her"])
def test_the_programs_run(block, tmp_path):
    ran("-c", re.sub(r"STEPS = [\d_]+", "STEPS = 200", block), folder=tmp_path)


@pytest.mark.long
def test_the_training_runs_and_is_evaluated(tmp_path):
    config, commands = (text for kind, text in BLOCKS if kind in {"json", "bash"})
    (tmp_path / "arm.json").write_text(config)
    assert Arm.model_validate(json.loads(config)["training"]["env"]) == Arm()
    train, evaluate, play = (shlex.split(line) for line in commands.splitlines())
    assert (train[0], evaluate[0], play[0]) == ("trainer", "trainer", "trainer")
    short = [word for name, value in SHORT.items() for word in ("--set", f"{name}={value}")]
    ran("-m", *train, *short, folder=tmp_path)
    rows = [json.loads(line) for line in next(tmp_path.glob("runs/arm/slots/0/attempts/*/evaluations.jsonl")).open()]
    assert set(rows[-1]["measures"]) == set(Arm.MEASURES)
    assert "2 goals a task" in ran("-m", *evaluate, "--goals", "2", folder=tmp_path)
    try:
        drawing.choose_renderer()
    except ConfigError as error:
        is_missing(str(error))
    assert "the video: reach.mp4" in ran("-m", *play, folder=tmp_path)


def test_the_table_of_measures_names_them_all():
    section = PAGE.split("\n### ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(Arm.MEASURES)
