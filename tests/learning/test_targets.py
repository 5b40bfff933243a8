"""What an episode's end is worth, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from suites import spaces_like, state_of

pytest.importorskip("torch")

import torch
from point_run import CPU
from train_point_mass import section

from trainer.envs.step import Observed, Step
from trainer.nets.mlp import with_task
from trainer.training.run import advance, fresh

pytestmark = pytest.mark.trainer


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Ends:
    """Every step pays 1. Task 0 is cut after two steps and would go on for ever; task 1 is over after each step."""

    num_envs = 2
    spaces = spaces_like(["reach-v3", "push-v3"])

    def __init__(self):
        self.steps = 0

    def _obs(self, *places):
        obs = np.zeros((2, 39), np.float32)
        obs[:, 0] = places
        return state_of(obs)

    def reset(self):
        return Observed(self._obs(0, 0), np.arange(2, dtype=np.int32))

    def step_async(self, actions, **_more):
        assert actions.shape == (2, 4)
        self.steps += 1

    def step_wait(self):
        is_cut = self.steps % 2 == 0
        terminated, truncated = np.array([False, True]), np.array([is_cut, False])
        task = np.arange(2, dtype=np.int32)
        return Step(
            obs=self._obs(0 if is_cut else 1, 0), next_obs=self._obs(2 if is_cut else 1, 1),
            reward=np.ones(2, np.float32), terminated=terminated, truncated=truncated, success=terminated, task=task,
            next_task=task, finished=terminated | truncated, episode_return=np.ones(2),
            episode_length=np.ones(2, np.int32), episode_success=terminated, episode_measures=np.zeros((2, 0)),
        )  # fmt: skip


@pytest.mark.long
def test_a_cut_episode_is_worth_what_would_have_followed_and_a_finished_one_is_not():
    """With a discount of 0.5 a step of task 0 is worth 1 + 1/2 + 1/4 + … = 2, one of task 1 is worth 1."""
    training = section(
        tasks=("reach-v3", "push-v3"), num_envs=2, gamma=0.5, tau=0.05, learning_rate=3e-3, init_temperature=1e-4,
        batch_size=16, random_steps=20, updates_per_step=0.5, critic_hidden=(16,),
    )  # fmt: skip
    state = fresh(training, CPU, Ends())
    while state.updates < 500:
        advance(state)
    ring, size = state.experience.own.arrays(), int(state.experience.own.sizes[0])
    assert (ring["next_obs.state"][:size, 0] == 2).sum() == size // 2, "what the cut left, not the next episode's first"
    assert not ring["terminated"][:size].any()
    batch = state.experience.own.pick(state.experience.own.deal(64), np.random.default_rng(0))
    x = with_task(torch.from_numpy(batch.obs["state"]), torch.from_numpy(batch.task), 2)
    action = torch.from_numpy(batch.action)
    with torch.no_grad():
        q = torch.stack([critic(x, action).squeeze(-1) for critic in state.algorithm.critics]).mean(0)
    assert [float(q[batch.task == task].mean()) for task in (0, 1)] == pytest.approx([2, 1], abs=0.1)
