"""SAC by torch's derivatives: its updates are MTSAC's, and for actions that are one of several the textbook's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from suites import learn

pytest.importorskip("torch")

import torch

from trainer.algorithms.base import Context
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.envs.spaces import STATE, ArraySpec, Box, Discrete, Spaces

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
ROWS, TASKS = 12, 3


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def made(name, spaces, **more):
    section = TrainingSection(
        env="anchorleg_toys.points:Points",
        algorithm={"name": name, "batch_size": ROWS, "buffer_size": 300, "learning_rate": 0.01, **more},
        network={"actor_hidden": (8, 8), "critic_hidden": (9, 9)},
    )
    training = resolve(section)
    return find(ALGORITHMS, name)(Context(training, spaces, 3, CPU, Experience(training, spaces)))


def batch_of(spaces, rng):
    action = spaces.action
    return Batch(
        obs={STATE: rng.standard_normal((ROWS, 5), np.float32)},
        action=rng.uniform(-1, 1, (ROWS, 4)).astype(np.float32)
        if isinstance(action, Box)
        else rng.integers(0, action.n, ROWS),
        reward=rng.random(ROWS, np.float32),
        next_obs={STATE: rng.standard_normal((ROWS, 5), np.float32)},
        terminated=(np.arange(ROWS) % 4 == 0).astype(np.float32),
        task=np.arange(ROWS) % TASKS,
    )


def test_its_updates_are_those_of_mtsac():
    spaces = Spaces({STATE: ArraySpec((5,))}, Box(4), ("a", "b", "c"), 10)
    more = {"target_entropy": -4.0, "tau": 0.1, "gamma": 0.9}
    plain, fast = made("sac", spaces, **more), made("mtsac", spaces, **more)
    rng = np.random.default_rng(0)
    for _ in range(3):
        batch = batch_of(spaces, rng)
        assert torch.allclose(learn(plain, batch), learn(fast, batch), atol=1e-4)
        one, other = plain.state().tensors, fast.state().tensors
        for name in (name for name in one if name.startswith(("policy.", "critics.", "targets.", "log_temperature"))):
            assert torch.allclose(one[name], other[name.replace(".nets", "")], atol=2e-5), name
    assert torch.equal(plain.state().tensors["noise"], fast.state().tensors["noise"])


def test_where_it_chooses_one_of_several_means_are_sums_over_all():
    """Christodoulou 2019, equations 10 to 12."""
    spaces = Spaces({STATE: ArraySpec((5,))}, Discrete(6), ("a", "b", "c"), 10)
    algorithm = made("sac", spaces, gamma=0.9, init_temperature=0.5)
    for (
        parameter
    ) in algorithm.nets.target_critics.parameters():  # else a target that is the critic itself goes unnoticed
        parameter.mul_(1.5)
    rng = np.random.default_rng(1)
    batch = batch_of(spaces, rng)
    one_hot = torch.eye(3)[batch.task]
    x, following = (torch.cat([torch.from_numpy(obs[STATE]), one_hot], 1) for obs in (batch.obs, batch.next_obs))
    action = torch.from_numpy(batch.action)
    policy, critics, targets = (
        copy.deepcopy(net)
        for net in (algorithm.policy.body, algorithm.nets.critics.nets, algorithm.nets.target_critics.nets)
    )
    with torch.no_grad():
        p = torch.softmax(policy(following), 1)
        value = (p * (torch.min(targets[0](following), targets[1](following)) - 0.5 * p.log())).sum(1)
        target = torch.from_numpy(batch.reward) + 0.9 * (1 - torch.from_numpy(batch.terminated)) * value
        q = [net(x)[torch.arange(ROWS), action] for net in critics]
        critic_loss = sum(((one - target) ** 2).mean() for one in q)
    measured = dict(zip(algorithm.METRICS, learn(algorithm, batch).tolist(), strict=True))
    assert measured["critic_loss"] == pytest.approx(critic_loss.item(), rel=1e-5)
    with torch.no_grad():
        p = torch.softmax(policy(x), 1)
        smaller = algorithm.nets.critics(x).amin(0)  # they have taken their step
        actor_loss = (p * (0.5 * p.log() - smaller)).sum(1).mean()
        entropy = -(p * p.log()).sum(1)
    assert measured["actor_loss"] == pytest.approx(actor_loss.item(), rel=1e-5)
    assert measured["entropy"] == pytest.approx(entropy.mean().item(), rel=1e-5)
    loss = -(np.log(0.5) * (-entropy + 0.89 * np.log(6))).mean()
    assert measured["temperature_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert not torch.equal(policy.layers[0].weight, algorithm.policy.body.layers[0].weight)
