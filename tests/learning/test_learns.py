"""Learning itself, with bars that a random policy and a broken learner miss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from point_mass import PointMasses
from point_run import CPU, envs_of
from suites import act_deterministic, metaworld, points
from train_point_mass import section

from anchorleg.job import Job
from trainer.config.section import TrainingSection, resolve
from trainer.evaluation.protocol import evaluate
from trainer.history.read import read_evaluations
from trainer.training.begin import run
from trainer.training.features.progress import TrainingDisplay
from trainer.training.run import advance, fresh

pytestmark = pytest.mark.trainer
#: Distance within which a point mass counts as being at its goal.
NEAR = 0.1
#: 20-step episodes: the last half is spent where the policy wants to be.
EPISODES = 8


def time_at_goal(act, training, seed=99):
    """The share of the last half of each episode that each task spends at its goal: [tasks]."""
    envs = PointMasses(replace(points(training), num_envs=len(training.env.tasks), seed=seed))
    observed = envs.reset()
    obs, task, there = observed.obs, observed.task, []
    for i in range(20 * EPISODES):
        step = envs.step(act(obs, task))
        if i % 20 >= 10:
            there.append(step.success)
        obs, task = step.obs, step.next_task
    return np.mean(there, axis=0)


@pytest.mark.long
@pytest.mark.parametrize(
    "fields",
    [
        {},
        pytest.param({"critic_net": "heads"}, marks=pytest.mark.long),
        pytest.param(
            {"critic_net": "residual", "critic_loss": "categorical", "critic_hidden": (32,), "weight_decay": 1e-4},
            marks=pytest.mark.long,
        ),
    ],
    ids=["plain", "heads", "categorical"],
)
def test_three_tasks_are_learned_by_one_policy_in_seconds(fields):
    torch.set_num_threads(1)
    training = section(
        **{
            "num_envs": 3, "updates_per_step": 1.0, "batch_size": 66, "buffer_size": 3000, "actor_hidden": (32, 32),
            "critic_hidden": (32, 32), "learning_rate": 3e-3, "gamma": 0.9, "init_temperature": 0.1,
            "random_steps": 300, **fields,
        }
    )  # fmt: skip
    rng = np.random.default_rng(0)
    by_chance = time_at_goal(lambda obs, task: rng.uniform(-1, 1, (len(task), 4)).astype(np.float32), training)
    state = fresh(training, CPU, envs_of(training))
    while state.step < 2400:
        advance(state)
    learned = time_at_goal(lambda obs, task: act_deterministic(state.algorithm, obs, task), training)
    assert by_chance.max() < 0.5
    assert learned.min() > 0.8, learned


@pytest.mark.long
def test_reach_is_learned_by_the_tiny_preset_on_three_seeds(tmp_path):
    """The bars were written down before the runs. Random policies reach 0 of 50 goals (measured here)."""
    pytest.importorskip("metaworld")
    rng = np.random.default_rng(0)
    chance = evaluate(
        lambda obs, task: rng.uniform(-1, 1, (len(task), 4)).astype(np.float32), metaworld(("reach-v3",), 100), 50
    )
    assert chance is not None
    assert chance.mean_success < 0.05
    curves = []
    for seed in range(3):  # one to four minutes each
        job = Job.standalone(tmp_path / str(seed))
        training = resolve(TrainingSection(preset="tiny", seed=seed, evaluation_interval=2_000, device="cpu"))
        assert run(job, training, TrainingDisplay()) == 0
        curves.append([row["mean_success"] for row in read_evaluations(job.slot_dir)])
    assert {len(curve) for curve in curves} == {10}
    reached = [np.mean(curve[-2:]) for curve in curves]
    assert min(reached) >= 0.35, curves
    assert np.median(reached) >= 0.5, curves
