"""What is learned, against values worked out by hand: one whole update, and what an episode's end is worth."""

from __future__ import annotations

import numpy as np
import pytest
from suites import learn, learner_of, spaces_like, state_of

pytest.importorskip("torch")

import torch
from point_run import CPU
from train_point_mass import section

from trainer.buffers.rows import Batch
from trainer.envs.step import Observed, Step
from trainer.nets.mlp import with_task
from trainer.training.run import advance, fresh

pytestmark = pytest.mark.trainer


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def layers_of(net):
    """(weight, bias) of each layer, in double precision, to differentiate by."""
    return [tuple(p.detach().double().requires_grad_() for p in (one.weight, one.bias)) for one in net.layers]


def through(layers, x):
    for weight, bias in layers[:-1]:
        x = (x @ weight.T + bias).clamp(min=0)
    return x @ layers[-1][0].T + layers[-1][1]


def played(layers, x, noise):
    """(actions, log densities): tanh of a Gaussian whose log standard deviation is cut off at -20 and 2."""
    mean, raw = through(layers, x).chunk(2, dim=1)
    std = torch.exp(raw.clamp(-20, 2))
    action = torch.tanh(mean + std * noise)
    gaussian = torch.distributions.Normal(mean, std).log_prob(mean + std * noise)
    return action, (gaussian - torch.log(1 - action**2)).sum(1)


def adams_first_step(layers, loss, rate):
    """Adam's first step is rate · g / (|g| + eps), here with eps 1."""
    flat = [parameter for layer in layers for parameter in layer]
    slopes = torch.autograd.grad(loss, flat, retain_graph=True)
    moved = [p - rate * g / (g.abs() + 1) for p, g in zip(flat, slopes, strict=True)]
    return [tuple(p.detach().requires_grad_() for p in moved[i : i + 2]) for i in range(0, len(moved), 2)]


def close(layers, net):
    flat = [parameter for layer in layers for parameter in layer]
    return all(torch.allclose(a, b.double(), rtol=0, atol=2e-7) for a, b in zip(flat, net.parameters(), strict=True))


def test_one_update_is_soft_actor_critic_as_written_on_paper():
    rate, gamma, tau, entropy = 0.01, 0.9, 0.25, -2.0
    training = section(
        learning_rate=rate, gamma=gamma, tau=tau, target_entropy=entropy, adam_eps=1.0, actor_hidden=(8, 8),
        critic_hidden=(8, 8),
    )  # fmt: skip
    learner = learner_of(training)
    learner.log_temperature.data = torch.tensor([0.05, 0.5, 1.5]).log()
    for parameter in learner.target_critics.parameters():  # else a target that is the critic itself goes unnoticed
        parameter.mul_(1.5)
    rng = np.random.default_rng(0)
    n, task = 12, np.arange(12) % 3
    batch = Batch(
        obs=state_of(rng.standard_normal((n, 39), np.float32)),
        action=rng.uniform(-1, 1, (n, 4)).astype(np.float32),
        reward=rng.random(n, np.float32),
        next_obs=state_of(rng.standard_normal((n, 39), np.float32)),
        terminated=(np.arange(n) % 4 == 0).astype(np.float32),
        task=task,
    )
    noise = torch.Generator()
    noise.set_state(learner.noise.get_state())
    first, second = (torch.randn(n, 4, generator=noise).double() for _ in range(2))

    actor = layers_of(learner.policy.body)
    critics, targets = ([layers_of(net) for net in nets] for nets in (learner.critics, learner.target_critics))
    one_hot = torch.eye(3, dtype=torch.float64)[task]
    x, next_x = (
        torch.cat([torch.from_numpy(obs["state"]).double(), one_hot], 1) for obs in (batch.obs, batch.next_obs)
    )
    log_temperature = learner.log_temperature.detach().double().requires_grad_()
    price = log_temperature.detach().exp()[task]
    reward, terminated = torch.from_numpy(batch.reward).double(), torch.from_numpy(batch.terminated).double()

    def q(nets, at, action):
        return torch.stack([through(net, torch.cat([at, action], 1))[:, 0] for net in nets])

    with torch.no_grad():
        next_action, next_log = played(actor, next_x, first)
        goal = reward + gamma * (1 - terminated) * (q(targets, next_x, next_action).min(0)[0] - price * next_log)
    critic_loss = sum(((row - goal) ** 2).mean() for row in q(critics, x, torch.from_numpy(batch.action).double()))
    critics = [adams_first_step(net, critic_loss, rate) for net in critics]
    action, log = played(actor, x, second)
    actor_loss = (price * log - q(critics, x, action).min(0)[0]).mean()
    log = log.detach()
    temperature_loss = -(log_temperature[task] * (log + entropy)).mean()

    measured = dict(zip(learner.METRICS, learn(learner, batch).tolist(), strict=True))

    assert measured["critic_loss"] == pytest.approx(critic_loss.item(), rel=1e-5)
    assert measured["actor_loss"] == pytest.approx(actor_loss.item(), rel=1e-5)
    assert measured["temperature_loss"] == pytest.approx(temperature_loss.item(), rel=1e-5)
    assert measured["entropy"] == pytest.approx(-log.mean().item(), rel=1e-5)
    assert all(close(mine, net) for mine, net in zip(critics, learner.critics, strict=True))
    assert close(adams_first_step(actor, actor_loss, rate), learner.policy)
    slope = torch.autograd.grad(temperature_loss, log_temperature)[0]
    moved = log_temperature - rate * slope / (slope.abs() + 1)
    assert torch.allclose(moved, learner.log_temperature.double(), rtol=0, atol=2e-7)
    for before, critic, net in zip(targets, critics, learner.target_critics, strict=True):
        pairs = zip(before, critic, strict=True)
        assert close([tuple(b + tau * (c - b) for b, c in zip(*pair, strict=True)) for pair in pairs], net)


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
