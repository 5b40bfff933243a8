"""Multi-task SAC against the textbook, by torch and in C; and what its nets are drawn from."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from suites import learner_of, state_of

pytest.importorskip("torch")

import torch
from needs import is_missing
from torch import nn

from trainer.algorithms.common import categorical
from trainer.algorithms.common.multitask import inputs_of
from trainer.algorithms.common.native.update import NativeUpdates
from trainer.algorithms.common.sharding import Sample
from trainer.buffers.rows import Batch
from trainer.config.section import TrainingSection, resolve
from trainer.machine.building import NoLibraryError

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3", "door-open-v3")
ROWS = 12


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def a_learner(**fields):
    values = {"tasks": TASKS, "actor_hidden": (16,), "critic_hidden": (16, 16), "batch_size": ROWS, **fields}
    return learner_of(resolve(TrainingSection(preset="debug", **values)))


def a_batch(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.standard_normal((2, n, 39), np.float32)
    action, reward = rng.uniform(-1, 1, (n, 4)).astype(np.float32), rng.random(n, np.float32)
    ended = (rng.random(n) < 0.25).astype(np.float32)
    return Batch(state_of(obs), action, reward, state_of(next_obs), ended, np.arange(n) % 3)


class Textbook:
    """Haarnoja et al. 2018 with learned temperatures; for categorical critics BRC's loss (Nauman et al. 2025). By
    torch's derivatives and distributions, and AdamW.
    """

    def __init__(self, learner):
        self.settings, self.target_entropy = learner.settings, learner.target_entropy
        nets = learner.policy.body, learner.critics, learner.target_critics
        self.actor, self.critics, self.targets = (copy.deepcopy(net) for net in nets)
        shared = self.settings.shared_temperature
        self.log_temperature = nn.Parameter(learner.log_temperature.detach()[0 if shared else slice(None)].clone())
        self.largest = torch.zeros(3)
        self.values = None
        if self.settings.critic_loss == "categorical":
            self.values = torch.linspace(
                -self.settings.value_limit, self.settings.value_limit, self.settings.value_bins
            )
        rates = {"lr": self.settings.learning_rate, "eps": self.settings.adam_eps}
        decay = self.settings.weight_decay
        self.adam = {net: torch.optim.AdamW(net.parameters(), weight_decay=decay, **rates) for net in self.nets}
        self.temperature_adam = torch.optim.AdamW([self.log_temperature], weight_decay=0.0, **rates)

    @property
    def nets(self):
        return self.actor, self.critics

    def acted(self, x, noise):
        mean, log_std = self.actor(x).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        u = mean + normal.scale * noise
        action = torch.tanh(u)
        return action, (normal.log_prob(u) - torch.log(1 - action.square())).sum(1)

    def q(self, outputs):
        return outputs.squeeze(-1) if self.values is None else torch.softmax(outputs, -1) @ self.values

    def both(self, critics, x, action):
        return torch.stack([critic(x, action) for critic in critics])

    def target(self, inputs, next_x, temperature):
        action, log_prob = self.acted(next_x, inputs.next_noise)
        outputs = self.both(self.targets, next_x, action)
        discount = self.settings.gamma * (1 - inputs.terminated)
        if self.values is None:
            return inputs.reward + discount * (torch.min(*self.q(outputs)) - temperature * log_prob)
        for k, reward in zip(inputs.task.tolist(), inputs.reward.abs(), strict=True):
            self.largest[k] = torch.maximum(self.largest[k], reward)
        scale = self.settings.value_limit * (1 - self.settings.gamma) / self.largest[inputs.task]
        shift = inputs.reward * scale - discount * temperature * log_prob
        return categorical.target(torch.softmax(outputs, -1).mean(0), shift, discount, self.values)

    def step(self, net, loss):
        self.adam[net].zero_grad()
        loss.backward()
        if self.settings.grad_clip:
            nn.utils.clip_grad_norm_(net.parameters(), self.settings.grad_clip)
        self.adam[net].step()

    def update(self, inputs):
        one_hot = torch.eye(3)[inputs.task]
        x, next_x = (torch.cat([obs, one_hot], 1) for obs in (inputs.obs, inputs.next_obs))
        temperature = self.log_temperature.detach().exp().expand(3)[inputs.task]
        with torch.no_grad():
            target = self.target(inputs, next_x, temperature)
        outputs = self.both(self.critics, x, inputs.action)
        if self.values is None:
            critic_loss = sum(nn.functional.mse_loss(one, target) for one in self.q(outputs))
        else:
            critic_loss = sum(nn.functional.cross_entropy(one, target) for one in outputs)
        self.step(self.critics, critic_loss)
        action, log_prob = self.acted(x, inputs.current_noise)
        q = self.q(self.both(self.critics, x, action))
        actor_loss = (temperature * log_prob - (torch.min(*q) if self.values is None else q.mean(0))).mean()
        self.step(self.actor, actor_loss)
        missing = log_prob.detach() + self.target_entropy
        temperature_loss = -(self.log_temperature.expand(3)[inputs.task] * missing).mean()
        self.temperature_adam.zero_grad()
        temperature_loss.backward()
        self.temperature_adam.step()
        for ours, theirs in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
            ours.data = (1 - self.settings.tau) * ours.data + self.settings.tau * theirs.data
        losses = critic_loss, actor_loss, temperature_loss, self.q(outputs).mean(), -log_prob.mean()
        return [loss.item() for loss in losses]


KINDS = {
    "plain": {},
    "deeper": {"critic_hidden": (24, 16, 8)},
    "decayed": {"weight_decay": 0.1},
    "clipped": {"grad_clip": 0.01},
    "heads": {"critic_net": "heads", "grad_clip": 1.0},
    "one temperature": {"shared_temperature": True},
    "residual": {"critic_net": "residual"},
    "categorical": {
        "critic_net": "residual", "critic_loss": "categorical", "value_bins": 5, "value_limit": 2.0, "gamma": 0.5,
    },
}  # fmt: skip
WAYS = [*((kind, "torch") for kind in KINDS), *((kind, "C") for kind in KINDS if "critic_net" not in KINDS[kind])]


@pytest.mark.parametrize(("kind", "way"), [*WAYS, ("heads", "C")])
def test_its_updates_are_those_of_the_textbook(kind, way):
    learner = a_learner(learning_rate=0.01, adam_eps=1e-4, tau=0.1, init_temperature=0.5, **KINDS[kind])
    generator = torch.Generator().manual_seed(1)
    for net in (learner.critics, learner.target_critics):
        for parameter in net.parameters():  # else one critic is the smaller one everywhere, and a target the critic
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    try:
        update = NativeUpdates(learner).learn if way == "C" else learner.update_of
    except NoLibraryError as error:
        is_missing(str(error))
    book = Textbook(learner)
    for seed in range(4):
        batch = a_batch(seed=seed)
        inputs = inputs_of(Sample(batch, learner.draw(batch, learner.noise)), learner.device)
        assert update(inputs).tolist() == pytest.approx(book.update(inputs), rel=1e-3, abs=1e-5)
    pairs = (learner.policy.body, book.actor), (learner.critics, book.critics), (learner.target_critics, book.targets)
    for mine, theirs in pairs:
        for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-4)
    assert torch.allclose(learner.log_temperature, book.log_temperature.expand(3), atol=1e-5)
    assert not torch.equal(book.targets[0].get_parameter(name := first_name(book.targets[0])),
                           book.critics[0].get_parameter(name))  # fmt: skip


def first_name(net):
    return next(name for name, _ in net.named_parameters())
