"""Named starting points for the training section: what a user does not write comes from here, and what a preset does
not say from the defaults of the settings, which are the guide's. Short names, as a user may write them.
"""

from __future__ import annotations

from typing import Any

#: Preset → values that grow with the number of tasks K, each for one task; `updates_a_round` is for K transitions.
_BY_TASK: dict[str, dict[str, int]] = {
    # rainx0r/mtrl, experiments/mt10_mtmhsac_v2_1024.py, its twin of MT50 and config/rl.py: MT10 20M steps, batch 1,280,
    # 1M rows; MT50 100M, 6,400, 5M, evaluated every 1M; 4,000 vector steps at random, then an update a vector step.
    "mclean": {
        "total_steps": 2_000_000,
        "batch_size": 128,
        "buffer_size": 100_000,
        "random_steps": 4_000,
        "evaluation_interval": 20_000,
        "updates_a_round": 1,
    },
    # BRC: 1M steps a task, two updates a vector step. It keeps 1M rows a task (32 GB for MT50); 200k here.
    "best": {
        "total_steps": 1_000_000,
        "buffer_size": 200_000,
        "random_steps": 5_000,
        "evaluation_interval": 20_000,
        "updates_a_round": 2,
    },
    # Fewer steps, more updates of each: 8 a vector step (BRO: 10 a step of its one environment, with resets).
    "brc": {
        "total_steps": 300_000,
        "buffer_size": 200_000,
        "random_steps": 2_500,
        "evaluation_interval": 20_000,
        "updates_a_round": 8,
    },
}

#: What `best` and `brc` share: BRC (Nauman et al. 2025, arXiv 2505.23150) as far as it is built. A hypothesis:
#: it was not trained to the end here, and BRC's own Meta-World results may be for one fixed goal a task. Different from
#: BRC: plain actor with one-hot tasks (BRC: a residual block, the critic's embedding), rewards scaled by the largest
#: reward (BRC: return), width 1,024 (BRC: 4,096).
_BRC: dict[str, Any] = {
    "batch_size": 1024,
    "critic_hidden": (1024, 1024),
    "critic_net": "residual",
    "critic_loss": "categorical",
    "weight_decay": 1e-4,
    # Scaled rewards are at most value_limit (1 - gamma) = 0.1, a hundredth of Meta-World's 10: so is the temperature.
    "init_temperature": 0.01,
    "shared_temperature": True,
    "target_entropy": -2.0,
    "checkpoint_interval": 50_000,
}

#: What `tiny` learns by, and larger ones after it: no far sight, large steps, little chance in what is tried.
_TINY: dict[str, Any] = {"learning_rate": 1e-3, "gamma": 0.97, "init_temperature": 0.1, "target_entropy": -2.0}

#: What short runs of `tiny` and `debug` share.
_SHORT: dict[str, Any] = {
    "batch_size": 128,
    "critic_hidden": (128, 128),
    "horizon": 100,
    "random_steps": 1_000,
    "checkpoint_interval": 2_000,
    "metrics_interval": 500,
    "evaluation_interval": 0,
    "evaluation_unseen_goals": 0,
}

#: Of one task that is learned within minutes.
_SMALL = {"total_steps": 100_000, "num_envs": 8, "evaluation_unseen_goals": 0, "metrics_interval": 2_000}
#: The arm: the guide's evaluation each 5,000, but of 50 episodes: three or five cannot tell 70 % from 85 %.
_ARM: dict[str, Any] = {
    **_SMALL,
    "env": "arm",
    "checkpoint_interval": 5_000,
    "evaluation_interval": 5_000,
    "evaluation_goals": 50,
}
#: What the presets by FastTD3's settings share (younggyoseo/FastTD3, fast_td3/hyperparams.py).
_FAST_TD3: dict[str, Any] = {
    "algorithm": "td3",
    "gamma": 0.97,
    "tau": 0.1,
    "n_step": 3,
    "critic_loss": "categorical",
    "exploration_noise": 0.001,
    "exploration_noise_max": 0.4,
    "target_noise": 0.001,
    "weight_decay": 0.1,
}
#: Gymnasium's classic of a pole on a cart.
_CARTPOLE: dict[str, Any] = {
    **_SMALL,
    "env": {"name": "gymnasium", "id": "CartPole-v1", "horizon": 500},
    "checkpoint_interval": 10_000,
    "evaluation_interval": 10_000,
    "evaluation_goals": 20,
}

#: Preset → what it is for, in a sentence.
ABOUT = {
    "guide": "The guides' values, which they call conservative.",
    "guide-2m": "The guides' short run: 32 environments.",
    "guide-20m": "The guides' full run: 48 environments.",
    "aggressive": "The guides' aggressive values: larger batches, a larger replay, a larger learning rate.",
    "mclean": "McLean et al. 2025 as the authors' code has it.",
    "best": "BRC (Nauman et al. 2025) as far as it is built; not trained to the end here.",
    "brc": "`best` with fewer steps and four times the updates of each, for a GPU that waits for the simulator.",
    "tiny": "Small nets that learn reach-v3 on a CPU.",
    "debug": "The guides' debugging values with small nets: a short run through all parts of the program.",
    "arm-ppo": "An arm learns to reach by PPO.",
    "arm-a2c": "The same task by A2C: with five seeds it held 5 cm at 97 to 100 of 100 goals.",
    "arm-sac": "The same task by SAC: not trained to its end here.",
    "arm-pixels": "The arm learns to reach near goals by PPO from two cameras and what it feels of itself; its critic "
    "sees the state.",
    "reach-pixels": "DrQ-v2 on reach-v3 from two small pictures and where the hand is: nine of ten held-out goals "
    "after 20 minutes of a core.",
    "arm-td3": "The arm by FastTD3's settings of TD3, with 128 environments: not trained to its end here.",
    "fast-td3": "MT10 on one GPU by FastTD3's settings: 1,280 environments on the CPU, the replay on the GPU; it "
    "learned little in its first minutes.",
    "fast": "MT10 on one GPU by multi-task SAC: 130 environments on the CPU, the replay on the GPU; six of ten tasks "
    "after 100,000 updates.",
    "laptop": "MT10 in about an hour on two CPU cores, by multi-task SAC with large batches: 0.597 of it after "
    "the hour (three seeds), of what was tried the most.",
    "cartpole-ppo": "A pole is balanced by PPO.",
    "cartpole-a2c": "The same task by A2C: all of 500 steps with five seeds, after dips on the way.",
}

#: Preset → what differs from the guide, but for what is in `by_task`.
PRESETS: dict[str, dict[str, Any]] = {
    # The user's guides ("McLean et al. 2025" in their words; the authors' released code differs, see `mclean`). What
    # they do not say is ours: `updates_per_step` and `random_steps`.
    "guide": {},
    "guide-2m": {"num_envs": 32, "checkpoint_interval": 50_000},
    "guide-20m": {"num_envs": 48, "checkpoint_interval": 50_000, "total_steps": 20_000_000},
    # 10M rows are 3.3 GB of memory once they are there.
    "aggressive": {"batch_size": 2048, "buffer_size": 10_000_000, "learning_rate": 5e-4},
    # McLean et al. 2025 as their code has it (rainx0r/mtrl): 87 % on MT10 after 20M steps at this width, 72.7 % on MT50
    # after 100M; 92 and 82 % at width 2048 (their figures 1 and 2). Theirs has heads in the actor too; by their figure
    # 6 heads made no difference on MT10 (85.7 to 85.4 %), and a published actor of ours has none. Theirs has he-normal
    # weights.
    "mclean": {
        "actor_hidden": (1024, 1024, 1024),
        "critic_hidden": (1024, 1024, 1024),
        "critic_net": "heads",
        "grad_clip": 1.0,
        "adam_eps": 1e-5,
        "checkpoint_interval": 100_000,
    },
    "best": _BRC,
    "brc": _BRC,
    # Learns reach-v3 on a CPU, most of it: success is 0.83 at the end, the mean of ten seeds (bench/poison.py).
    "tiny": {
        **_TINY,
        **_SHORT,
        "tasks": ("reach-v3",),
        "total_steps": 20_000,
        "buffer_size": 40_000,
        "actor_hidden": (128, 128),
        "updates_per_step": 1.0,
    },
    "debug": {
        **_SHORT,
        "total_steps": 10_000,
        "buffer_size": 100_000,
        "learning_rate": 1e-3,
        "actor_hidden": (64, 64),
        "evaluation_goals": 5,
    },
    # 2,048 steps a rollout as stable-baselines3 has them, by 8 environments; the discount is ours: what the hand does
    # now shows within a second.
    "arm-ppo": {**_ARM, "algorithm": "ppo", "gamma": 0.95},
    # rl-baselines3-zoo's for ReacherBullet (hyperparams/a2c.yml), with 8 environments and without gSDE. But its
    # discount of 0.98 and step size of 9.6e-4 held 5 cm at none of 50 goals after 100,000 steps; 0.98 and 2e-3 at 8 %,
    # 0.9 and 9.6e-4 at 92 %, 0.9 and 2e-3 at all of them (one seed each, two of the last).
    "arm-a2c": {
        **_ARM,
        "algorithm": "a2c",
        "gamma": 0.9,
        "rollout_steps": 8,
        "gae_lambda": 0.9,
        "value_coef": 0.4,
        "learning_rate": 2e-3,
        "learning_rate_steps": "total",
    },
    # The zoo's for reaching with hindsight (discount, learning rate), without it; an update a step.
    "arm-sac": {**_ARM, "algorithm": "sac", "gamma": 0.95, "learning_rate": 1e-3, "buffer_size": 100_000},
    # Rates and rollouts by a few tries on two cores; two views, because the arm hides the goal in one.
    "arm-pixels": {
        **_ARM,
        "env": {
            "name": "arm",
            "goals": "box",
            "horizon": 50,
            "observation": "both",
            "cameras": ["front", "side"],
            "critic_sees": "state",
        },
        "algorithm": "ppo",
        "gamma": 0.95,
        "learning_rate": 5e-4,
        "learning_rate_steps": "total",
        "rollout_steps": 128,
        "batch_size": 256,
        "epochs": 4,
        "actor_hidden": (128,),
        "critic_hidden": (64, 64),
        "total_steps": 300_000,
        "checkpoint_interval": 20_000,
        "evaluation_interval": 40_000,
    },
    # Pictures so small that a CPU bears DrQ-v2's encoder, nets and batches of a quarter, and `tiny`'s discount. The
    # critics read pictures too: where they saw the state, the actor, whose loss alone then teaches the encoder, went to
    # a bound at once and stayed there. Of the cameras these two show the ball best at this size. Without the penalty
    # the actor goes to a bound while Q is still growing, and some seeds do not come back.
    "reach-pixels": {
        "env": {
            "name": "metaworld",
            "tasks": ["reach-v3"],
            "horizon": 100,
            "observation": "both",
            "cameras": ["behindGripper", "topview"],
            "image_size": 32,
        },
        "algorithm": "drqv2",
        "gamma": 0.97,
        "learning_rate": 3e-4,
        "batch_size": 64,
        "buffer_size": 40_000,
        "random_steps": 1_000,
        "random_shift": 2,
        "exploration_noise_steps": 10_000,
        "preactivation_l2": 0.1,
        "actor_hidden": (256,),
        "critic_hidden": (256, 256),
        "total_steps": 40_000,
        "num_envs": 4,
        "checkpoint_interval": 5_000,
        "metrics_interval": 1_000,
        "evaluation_interval": 10_000,
        "evaluation_goals": 20,
        "evaluation_unseen_goals": 0,
    },
    # FastTD3's (younggyoseo/FastTD3, fast_td3/hyperparams.py): of its BaseArgs environments, steps at random (10 of
    # each), two updates a vector step, tau, noise and weight decay; of its MuJoCo Playground the discount, and of
    # LeapCubeReorient there three steps and the limit. Scaled down so that a CPU can bear it: batch 2,048 (32,768),
    # nets of half the width (1024, 512, 256 and 512, 256, 128), 500,000 steps and rows.
    "arm-td3": {
        **_ARM,
        **_FAST_TD3,
        "total_steps": 500_000,
        "num_envs": 128,
        "batch_size": 2_048,
        "buffer_size": 500_000,
        "random_steps": 1_280,
        "updates_per_step": 2 / 128,
        "value_limit": 50.0,
        "actor_hidden": (256, 128, 64),
        "critic_hidden": (512, 256, 128),
        "checkpoint_interval": 25_000,
        "evaluation_interval": 25_000,
        "metrics_interval": 10_000,
    },
    # The same at FastTD3's size, on Meta-World: its nets, 10 steps at random of each environment, and twice the updates
    # of its BaseArgs, for its manipulation tasks have up to 8 a vector step. Batch 16,384 (32,768). Rewards are at most
    # 10, so returns at most 10 / (1 - 0.97) = 333. A multiple of ten environments, so that each keeps its task. It
    # makes many steps and few updates, and learned little of MT10 in its first minutes (bench/gpu.py).
    "fast-td3": {
        **_FAST_TD3,
        "total_steps": 20_000_000,
        "num_envs": 1_280,
        "replay_on": "device",
        "cuda_graph": True,
        "batch_size": 16_384,
        "buffer_size": 5_000_000,
        "random_steps": 12_800,
        "updates_per_step": 4 / 1_280,
        "value_limit": 350.0,
        "actor_hidden": (512, 256, 128),
        "critic_hidden": (1024, 512, 256),
        "checkpoint_interval": 500_000,
        "evaluation_interval": 2_000_000,
        "evaluation_unseen_goals": 0,
        "metrics_interval": 50_000,
    },
    # Of what was tried on a GPU (bench/gpu_search.py of commit f5d2dfab) the one that learned most of MT10: `tiny`'s
    # discount, temperature and step size with nets of 512 and large batches. So many environments as a few cores step
    # while the GPU makes four updates; a multiple of ten, so that each keeps its task. Evaluations are rare: they take
    # cores from the stepping, and all of them are waited for.
    "fast": {
        **_TINY,
        "total_steps": 20_000_000,
        "num_envs": 130,
        "replay_on": "device",
        "cuda_graph": True,
        "precision": "bf16",
        "batch_size": 2_560,
        "buffer_size": 3_000_000,
        "actor_hidden": (512, 512),
        "critic_hidden": (512, 512),
        "updates_per_step": 4 / 130,
        "random_steps": 13_000,
        "checkpoint_interval": 650_000,
        "evaluation_interval": 2_600_000,
        "evaluation_unseen_goals": 0,
        "metrics_interval": 13_000,
    },
    # What bench/hour_search.py (of commit f5d2dfab) came to: hotter than `tiny` at first, and large batches.
    "laptop": {
        **_TINY,
        "total_steps": 10_000_000,
        "num_envs": 130,
        "batch_size": 1_024,
        "buffer_size": 1_000_000,
        "init_temperature": 1.0,
        "target_entropy": -4.0,
        "actor_hidden": (256, 256),
        "critic_hidden": (256, 256),
        "updates_per_step": 4 / 130,
        "random_steps": 5_000,
        "checkpoint_interval": 260_000,
        "metrics_interval": 26_000,
        "evaluation_interval": 1_560_000,
        "evaluation_unseen_goals": 0,
    },
    # The zoo's for CartPole-v1 (hyperparams/ppo.yml, a2c.yml); its falling clip range is fixed here. A2C is at
    # 500 after a fifth of the zoo's 500,000 steps (three seeds); with a step size that falls to 0 by then it was at 171
    # to 426.
    "cartpole-ppo": {
        **_CARTPOLE,
        "algorithm": "ppo",
        "rollout_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "epochs": 20,
        "learning_rate": 1e-3,
        "learning_rate_steps": "total",
        "normalise_obs": False,
        "normalise_reward": False,
    },
    "cartpole-a2c": {**_CARTPOLE, "algorithm": "a2c", "normalise_obs": False, "normalise_reward": False},
}

DEFAULT_PRESET = "guide"


def by_task(preset: str, tasks: int) -> dict[str, Any]:
    """The values of `preset` that depend on how many `tasks` there are."""
    values: dict[str, Any] = dict(_BY_TASK.get(preset, {}))
    if not values:
        return {}
    updates = values.pop("updates_a_round")
    return {name: value * tasks for name, value in values.items()} | {"updates_per_step": updates / tasks}
