"""Named starting points for the training section: what a user does not write comes from here. Standard library only."""

from __future__ import annotations

from typing import Any

#: What every preset shares unless it says otherwise.
_COMMON: dict[str, Any] = {
    "device": "auto",
    "seed": 0,
    "num_envs": None,
    "max_runtime_seconds": None,
    "gamma": 0.99,
    "tau": 0.005,
    "init_temperature": 1.0,
    "target_entropy": -4.0,
    "grad_clip": 0.0,
    "adam_eps": 1e-8,
    "horizon": 500,
    "num_workers": None,
    "threads": 1,
    "metrics_interval": 1_000,
    "evaluation_goals": 50,
    # Every 1,000 updates is every few seconds at the rates that cluster nodes reach: fresh, and cheap (one small file).
    "publish_interval": 1_000,
    # Off-policy learning bears old experience; a tenth of a usual run of 2M steps is where it stops to be worth it.
    "contribution_max_lag": 200_000,
    "keep_checkpoints": 3,
    "keep_milestones": 10,
    "stream": False,
    "stream_port": 9999,
    "stream_top_k": 2,
}

_MT10 = {"benchmark": "MT10"}

#: Preset → complete values. `tasks`/`benchmark` of the user replace both of the preset's.
PRESETS: dict[str, dict[str, Any]] = {
    # The user's guide ("McLean et al. 2025" in its words; the authors' released code differs).
    "guide": {
        **_COMMON,
        **_MT10,
        "total_steps": 2_000_000,
        "batch_size": 512,
        "buffer_size": 2_000_000,
        "learning_rate": 3e-4,
        "actor_hidden": (256, 256),
        "critic_hidden": (1024, 1024, 1024),
        "updates_per_step": 0.1,
        "random_steps": 10_000,
        "checkpoint_interval": 10_000,
        "evaluation_interval": 200_000,
    },
    # Learns reach-v3 on a laptop's CPU in minutes. It learns, it does not solve: success settles near 0.7.
    "tiny": {
        **_COMMON,
        "tasks": ("reach-v3",),
        "total_steps": 20_000,
        "batch_size": 128,
        "buffer_size": 40_000,
        "learning_rate": 1e-3,
        "actor_hidden": (128, 128),
        "critic_hidden": (128, 128),
        "gamma": 0.97,
        "init_temperature": 0.1,
        "target_entropy": -2.0,
        "horizon": 100,
        "updates_per_step": 1.0,
        "random_steps": 1_000,
        "checkpoint_interval": 2_000,
        "metrics_interval": 500,
        "evaluation_interval": 0,
    },
    # Walks every road of the program on MT10 in about a minute; it is not meant to learn much.
    "debug": {
        **_COMMON,
        **_MT10,
        "total_steps": 10_000,
        "batch_size": 128,
        "buffer_size": 100_000,
        "learning_rate": 1e-3,
        "actor_hidden": (64, 64),
        "critic_hidden": (128, 128),
        "horizon": 100,
        "updates_per_step": 0.1,
        "random_steps": 1_000,
        "checkpoint_interval": 2_000,
        "metrics_interval": 500,
        "evaluation_interval": 0,
        "evaluation_goals": 5,
    },
}

DEFAULT_PRESET = "guide"
