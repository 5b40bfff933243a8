"""Small trainings, each attempt a process that may be hurt between two updates (`killed_between_updates.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemons import WORK_S

from anchorleg.job import HANDED_OVER

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("killed_between_updates.py")
KILLED = -9
_PYTHONPATH = f"{ROOT}:{ROOT / 'tests' / 'plugin'}"
#: Eight rollouts of 256 steps, each learned from in 32 updates: four epochs of eight.
PPO: dict[str, Any] = {
    "preset": "arm-ppo",
    "network": {"actor_hidden": [16], "critic_hidden": [16]},
    "algorithm": {"name": "ppo", "rollout_steps": 64, "batch_size": 32, "epochs": 4, "learning_rate_steps": 4096},
    "num_envs": 4,
    "total_steps": 2048,
    "checkpoint_interval": 300,
    "metrics_interval": 128,
    "evaluation_goals": 0,
    "num_workers": 0,
}
UPDATES = 256
#: The same in four shards: four rollouts of 256 steps, each learned from in 16 updates.
SHARDED: dict[str, Any] = {
    **PPO,
    "algorithm": {**PPO["algorithm"], "shards": 4, "rollout_steps": 32, "batch_size": 32, "epochs": 2},
    "num_envs": 8,
    "total_steps": 1024,
}
SHARDED_UPDATES = 64
#: Off-policy in four shards: 20 updates, some behind each of the last steps; what is summed up of three steps, too.
SHARED: dict[str, dict[str, Any]] = {
    name: {
        "preset": "arm-sac",
        "algorithm": {"name": name, "shards": 4, "batch_size": 32, "updates_per_step": 0.5, "buffer_size": 50, **more},
        "network": {"actor_hidden": [16], "critic_hidden": [16]},
        "horizon": 10,
        "num_envs": 3,
        "total_steps": 60,
        "random_steps": 20,
        "checkpoint_interval": 12,
        "metrics_interval": 10,
        "evaluation_goals": 0,
        "num_workers": 0,
    }
    for name, more in {"sac": {}, "td3": {"n_step": 3, "exploration_noise_max": 0.3}, "mtsac": {}}.items()
}
SHARED_UPDATES = 18
#: What a training ends with that has lost a rank.
LOST = 8
_SMALL: dict[str, Any] = {
    "network": {"actor_hidden": [16], "critic_hidden": [16]},
    "horizon": 30,
    "num_envs": 4,
    "total_steps": 800,
    "random_steps": 200,
    "checkpoint_interval": 120,
    "metrics_interval": 100,
    "evaluation_goals": 0,
    "num_workers": 0,
}
#: What shows clips, and reads them.
_CLIPS: dict[str, Any] = {
    "env": {
        "name": "anchorleg_toys.points:Points",
        "image_size": 16,
        "observation": "clips",
        "frame_stack": 3,
        "frame_stride": 2,
    },
    "network": {**_SMALL["network"], "encoder": {"arch": "anchorleg_toys.glance:Glance"}},
}
#: Algorithms that learn from kept transitions, each with all that it remembers beside its nets: sums of three steps, an
#: environment's own noise, and frames; a replay on the learner's device, and products that are rounded. An update for
#: each two steps after the first 200.
OFF_POLICY: dict[str, dict[str, Any]] = {
    "sac": {**_SMALL, "preset": "arm-sac", "batch_size": 32, "updates_per_step": 0.5, "buffer_size": 500},
    "td3": {**_SMALL, "preset": "arm-td3", "batch_size": 32, "updates_per_step": 0.5, "buffer_size": 500},
    "bf16": {
        **_SMALL,
        "env": "arm",
        "algorithm": {
            "name": "mtsac",
            "precision": "bf16",
            "batch_size": 32,
            "updates_per_step": 0.5,
            "buffer_size": 500,
            "random_steps": 200,
        },
    },
    "clips": {
        **_SMALL,
        **_CLIPS,
        "algorithm": {"name": "td3", "n_step": 3, "batch_size": 32, "updates_per_step": 0.5, "buffer_size": 500},
    },
}
#: The presets for a GPU, small: what lies on the learner's device lies on the CPU here.
OFF_POLICY |= {
    preset: {
        **OFF_POLICY["td3"],
        "preset": preset,
        "tasks": ["reach-v3", "push-v3"],
        "device": "cpu",
        "num_envs": 8,
        "checkpoint_interval": 112,
    }
    for preset in ("fast", "fast-td3")
}
OFF_POLICY["device"] = {**OFF_POLICY["td3"], "replay_on": "device"}


def attempt(
    folder: Path,
    signals: dict[int, str],
    training: dict[str, Any],
    env: Mapping[str, str] | None = None,
    ranks: int = 1,
) -> tuple[int, str]:
    """The exit code of one attempt of `training` by so many `ranks` that gets `signals`, and what it said."""
    folder.mkdir(exist_ok=True)
    (folder / "training.json").write_text(json.dumps(training))
    words = ("train", "--config", "training.json", "--run-dir", "run", *(("--ranks", str(ranks)) if ranks > 1 else ()))
    usual = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1", "PYTHONPATH": _PYTHONPATH}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps([signals]), *words],
        cwd=folder,
        env={**usual, **(env or {})},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def train(
    folder: Path,
    *interruptions: dict[int, str],
    training: dict[str, Any] = PPO,
    env: Mapping[str, str] | None = None,
) -> str:
    """One attempt for each interruption, then one to the end; all that they said."""
    said = []
    for signals in interruptions:
        code, words = attempt(folder, signals, training, env)
        assert code == (KILLED if "SIGKILL" in signals.values() else HANDED_OVER), words
        said.append(words)
    code, words = attempt(folder, {}, training, env)
    assert code == 0, words
    assert "Traceback" not in "".join([*said, words])
    return "".join([*said, words])


def updates_of(name: str) -> int:
    """How many an off-policy training makes: what the last vector step earns is not made."""
    return 300 - int(OFF_POLICY[name]["num_envs"]) // 2
