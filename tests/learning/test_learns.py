"""Learning itself, with bars that a random policy and a broken learner miss."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from point_mass import PointMasses
from point_run import CPU, envs_of
from train_point_mass import section

from trainer.agents import mtsac
from trainer.envs.spec import VectorSpec
from trainer.state import advance, fresh

pytestmark = pytest.mark.trainer
#: Distance within which a point mass counts as being at its goal.
NEAR = 0.1
#: 20-step episodes: the last half is spent where the policy wants to be.
EPISODES = 8


def time_at_goal(act, training, seed=99):
    """The share of the last half of each episode that each task spends at its goal: [tasks]."""
    tasks = training.tasks
    envs = PointMasses(VectorSpec(tasks, (), len(tasks), seed, 20))
    observed = envs.reset()
    obs, task, there = observed.obs, observed.task, []
    for i in range(20 * EPISODES):
        step = envs.step(act(obs, task))
        if i % 20 >= 10:
            there.append(step.success)
        obs, task = step.obs, step.next_task
    return np.mean(there, axis=0)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"critic_net": "heads"},
        {"critic_net": "residual", "critic_loss": "categorical", "critic_hidden": (32,), "weight_decay": 1e-4},
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
    by_chance = time_at_goal(lambda obs, task: rng.uniform(-1, 1, (len(obs), 4)).astype(np.float32), training)
    state = fresh(training, CPU, envs_of(training))
    while state.step < 2400:
        advance(state)
    learned = time_at_goal(lambda obs, task: mtsac.act_greedily(state.learner, obs, task), training)
    assert by_chance.max() < 0.5
    assert learned.min() > 0.8, learned


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_reach_is_learned_by_the_tiny_preset_on_three_seeds(tmp_path):
    """2-4 minutes a seed. Random policies reach 0 of 50 goals (measured in the same test)."""
    pytest.importorskip("metaworld")
    from orchestrator.job import Job
    from trainer.config import TrainingSection, resolve
    from trainer.evaluate import evaluate
    from trainer.loop import run
    from trainer.metrics import read_evaluations
    from trainer.views import Display

    rng = np.random.default_rng(0)
    chance = evaluate(
        lambda obs, task: rng.uniform(-1, 1, (len(obs), 4)).astype(np.float32), ("reach-v3",), 50, 100, seed=0
    )
    assert chance is not None
    assert chance.mean_success < 0.05
    reached = []
    for seed in range(3):
        training = resolve(TrainingSection(preset="tiny", seed=seed, evaluation_interval=17_500, device="cpu"))
        job = Job.standalone(tmp_path / str(seed))
        assert run(job, training, Display(live=False)) == 0
        reached.append(np.mean([row["mean_success"] for row in read_evaluations(job.slot_dir)[-2:]]))
    assert min(reached) >= 0.35, reached
    assert np.median(reached) >= 0.5, reached
