"""An agent of one of Atari's games gets better although its job ends three times: what the second guide asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from daemons import LONG_S
from needs import need_package

pytest.importorskip("torch")

from anchorleg.job import HANDED_OVER, attempt_numbers
from trainer.history.read import read_evaluations

pytestmark = [pytest.mark.trainer, pytest.mark.long]
ROOT = Path(__file__).resolve().parents[2]
GAME = {"id": "ALE/Krull-v5", "kwargs": {"obs_type": "ram"}, "horizon": 27_000}
TRAINING: dict[str, Any] = {
    "preset": "cartpole-ppo",
    "env": {"name": "gymnasium", **GAME},
    "algorithm": {
        "name": "ppo", "rollout_steps": 128, "batch_size": 256, "epochs": 4, "gamma": 0.99, "gae_lambda": 0.95,
        "learning_rate": 1e-3, "learning_rate_steps": 0, "entropy_coef": 0.01, "normalise_obs": True,
        "normalise_reward": True,
    },
    "total_steps": 120_000,
    "evaluation_goals": 10,
    "evaluation_interval": 0,
    "num_workers": 0,
}  # fmt: skip
#: Vector steps after which each job is asked to hand over, such as in mid-rollout.
HAND_OVERS = (1_900, 1_877, 2_011)
HANDING_OVER = str(ROOT / "tests" / "support" / "handing_over.py")


def by_chance(episodes: int) -> float:
    """The mean score of random actions."""
    env, rng, scores = gymnasium.make(GAME["id"], **GAME["kwargs"]), np.random.default_rng(0), []
    for episode in range(episodes):
        env.reset(seed=episode)
        score, is_over = 0.0, False
        while not is_over:
            _, reward, terminated, truncated, _ = env.step(rng.integers(env.action_space.n))
            score, is_over = score + float(reward), terminated or truncated
        scores.append(score)
    return float(np.mean(scores))


def test_the_score_of_a_game_rises_through_three_hand_overs(tmp_path: Path) -> None:
    need_package("ale_py")
    import ale_py

    gymnasium.register_envs(ale_py)
    (tmp_path / "training.json").write_text(json.dumps(TRAINING))
    words = ("train", "--config", "training.json", "--run-dir", "run")
    for steps, expected in (*((steps, HANDED_OVER) for steps in HAND_OVERS), (10**9, 0)):
        done = subprocess.run(
            [sys.executable, HANDING_OVER, str(steps), *words],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONG_S, check=False,
        )  # fmt: skip
        assert done.returncode == expected, done.stdout
        assert "restarts an episode" not in done.stdout
    slot = tmp_path / "run/slots/0"
    assert attempt_numbers(slot) == [0, 1, 2, 3]
    (evaluation,) = read_evaluations(slot)
    (learned,) = evaluation["returns"].values()
    assert learned > 1.3 * by_chance(10), learned
