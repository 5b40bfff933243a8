"""DrQ-v2 against its authors' formulas, written out once more; and what moves pictures."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from suites import learn

pytest.importorskip("torch")

import torch
from refused import refused

from trainer.algorithms.base import Context
from trainer.algorithms.common.adoption import adopt
from trainer.algorithms.common.observations import FeatureCache
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.envs.collector import Transition
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, ArraySpec, Box, Spaces
from trainer.envs.step import Step
from trainer.nets.encoders.common import drawn_moves, shifted

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
ROWS, SIDE, GAMMA = 6, 16, 0.9
SPACES = Spaces({IMAGE: ArraySpec((3, SIDE, SIDE), "uint8", 0, 255), STATE: ArraySpec((2,))}, Box(3), ("a", "b"), 10)
SEEING = Spaces({**SPACES.obs, PRIVILEGED: ArraySpec((4,), privileged=True)}, Box(3), ("a", "b"), 10)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def training_of(name="drqv2", encoder=None, **more):
    return resolve(
        TrainingSection(
            env={"name": "anchorleg_toys.points:Points", "tasks": ("a", "b")},
            algorithm={"name": name, "batch_size": ROWS, "buffer_size": 100, "learning_rate": 0.01, **more},
            network={
                "actor_hidden": (8,), "critic_hidden": (9,), "trunk": 5,
                "encoder": {"arch": "anchorleg_toys.glance:Glance", **(encoder or {})},
            },
        )
    )  # fmt: skip


def made(spaces=SPACES, name="drqv2", encoder=None, **more):
    training = training_of(name, encoder, **more)
    return find(ALGORITHMS, name)(Context(training, spaces, 3, CPU, Experience(training, spaces)))


def seen(rng, spaces=SPACES, rows=ROWS):
    return {
        key: rng.integers(0, 256, (rows, *spec.shape), np.uint8)
        if spec.dtype == "uint8"
        else rng.standard_normal((rows, *spec.shape), np.float32)
        for key, spec in spaces.obs.items()
    }


def batch_of(rng, spaces=SPACES):
    return Batch(
        obs=seen(rng, spaces),
        action=rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32),
        reward=rng.uniform(-1, 1, ROWS).astype(np.float32),
        next_obs=seen(rng, spaces),
        terminated=(np.arange(ROWS) % 4 == 0).astype(np.float32),
        task=np.arange(ROWS) % 2,
        steps=rng.integers(1, 4, ROWS).astype(np.float32),
    )


def tensors_in(obs):
    return {key: torch.from_numpy(array) for key, array in obs.items()}


class Authors:
    """facebookresearch/drqv2, drqv2.py: `update_critic`, `update_actor`; losses as means, Adam of torch. The penalty
    that `preactivation_l2` adds is ours.
    """

    def __init__(self, algorithm):
        self.settings, self.deviation = algorithm.settings, algorithm.deviation
        self.policy, self.critics, self.targets = (
            copy.deepcopy(net) for net in (algorithm.policy, algorithm.nets.critics, algorithm.nets.target_critics)
        )
        self.noise = torch.Generator().manual_seed(0)
        self.noise.set_state(algorithm.state().tensors["noise"])
        self.encoder_adam = torch.optim.Adam(self.policy.encoders.parameters(), 0.01)
        self.critic_adam = torch.optim.Adam(self.critics.parameters(), 0.01)
        self.actor_adam = torch.optim.Adam(self.policy.head, 0.01)

    def features(self, obs, task):
        pictures = tensors_in(obs)
        pictures[IMAGE] = shifted(pictures[IMAGE], drawn_moves(len(task), self.settings.random_shift, self.noise))
        return self.policy.inputs(pictures, torch.from_numpy(task))

    def acted(self, features):
        self.before = self.policy.body(self.policy.trunk(features))
        mean = torch.tanh(self.before)
        noise = torch.randn(ROWS, 3, generator=self.noise) * self.deviation
        moved = mean + noise.clamp(-self.settings.noise_clip, self.settings.noise_clip)
        return moved - moved.detach() + moved.detach().clamp(-1, 1)

    def update(self, batch):
        with torch.no_grad():
            following = self.features(batch.next_obs, batch.task)
            action = self.acted(following)
            one, other = self.targets(following, action)
            discount = torch.from_numpy(GAMMA**batch.steps * (1 - batch.terminated))
            target = torch.from_numpy(batch.reward) + discount * torch.min(one, other)[:, 0]
        features = self.features(batch.obs, batch.task)
        one, other = self.critics(features, torch.from_numpy(batch.action))
        loss = torch.nn.functional.mse_loss(one[:, 0], target) + torch.nn.functional.mse_loss(other[:, 0], target)
        self.encoder_adam.zero_grad()
        self.critic_adam.zero_grad()
        loss.backward()
        self.critic_adam.step()
        self.encoder_adam.step()
        features = features.detach()
        actor_loss = -torch.min(*self.critics(features, self.acted(features))).mean()
        actor_loss += self.settings.preactivation_l2 * self.before.square().sum() / self.before.numel()
        self.actor_adam.zero_grad()
        actor_loss.backward()
        self.actor_adam.step()
        for ours, theirs in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
            ours.data = (1 - self.settings.tau) * ours.data + self.settings.tau * theirs.data
        return loss.item(), actor_loss.item()


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_its_updates_are_those_of_its_authors(penalty):
    algorithm = made(gamma=GAMMA, random_shift=2, exploration_noise=0.8, tau=0.1, n_step=3, preactivation_l2=penalty)
    for parameter in algorithm.nets.target_critics.parameters():
        parameter.data *= 1.5
    authors, rng = Authors(algorithm), np.random.default_rng(0)
    for _ in range(4):
        batch = batch_of(rng)
        loss, actor_loss, _ = learn(algorithm, batch).tolist()
        assert (loss, actor_loss) == pytest.approx(authors.update(batch), rel=1e-3, abs=1e-5)
    for mine, theirs in ((algorithm.policy, authors.policy), (algorithm.nets.critics, authors.critics)):
        for name, tensor in theirs.state_dict().items():
            assert torch.allclose(mine.state_dict()[name], tensor, atol=1e-3), name


def changed(net, before):
    return {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}


@pytest.mark.parametrize("name", ["drqv2", "sac", "td3"])
def test_critics_that_see_the_state_read_no_pictures_and_leave_the_encoder_to_the_actor(name):
    more = {"policy_delay": 1} if name == "td3" else {}
    algorithm = made(SEEING, name, random_shift=0, **more)
    rng = np.random.default_rng(0)
    batch = batch_of(rng, SEEING)
    inputs, _ = algorithm.nets.inputs(batch.obs, batch.task)
    other = {**batch.obs, IMAGE: 255 - batch.obs[IMAGE]}
    assert torch.equal(algorithm.nets.inputs(other, batch.task)[0].critics, inputs.critics)
    other = {**batch.obs, PRIVILEGED: -batch.obs[PRIVILEGED]}
    assert torch.equal(algorithm.nets.inputs(other, batch.task)[0].policy, inputs.policy)
    assert not torch.equal(algorithm.nets.inputs(other, batch.task)[0].critics, inputs.critics)
    assert PRIVILEGED not in algorithm.policy.spec.spaces.obs
    before = {key: value.clone() for key, value in algorithm.policy.state_dict().items()}
    learn(algorithm, batch)
    assert any(key.startswith("encoders.") for key in changed(algorithm.policy, before))


def test_an_encoder_learns_at_its_part_of_the_rate():
    moved = []
    for part in (1.0, 0.1):
        algorithm = made(encoder={"lr_scale": part})
        before = algorithm.policy.encoders[IMAGE].filters.detach().clone()
        learn(algorithm, batch_of(np.random.default_rng(0)))
        moved.append((algorithm.policy.encoders[IMAGE].filters - before).abs().max().item())
    assert moved[1] == pytest.approx(moved[0] / 10, rel=1e-3)


def test_the_noise_falls_in_a_line_and_a_published_policy_brings_it():
    algorithm = made(exploration_noise=1.0, exploration_noise_end=0.2, exploration_noise_steps=100)
    rng = np.random.default_rng(0)
    obs = seen(rng, rows=3)
    for step, wanted in ((0, 0.976), (47, 0.6), (500, 0.2)):
        none, task = np.zeros(3), np.zeros(3, np.int32)
        done = Step(
            obs, obs, none.astype(np.float32), none > 0, none > 0, none > 0, task, task, none > 0, none, task, none > 0
        )
        algorithm.observe(Transition(obs, np.zeros((3, 3), np.float32), done), step)
        assert algorithm.deviation == pytest.approx(wanted)
        assert algorithm.policy.free.exp().tolist() == pytest.approx([wanted] * 3)


@pytest.mark.parametrize("shape", [(3, 8, 9), (2, 3, 8, 9)])
def test_pictures_are_moved_as_padding_and_cutting_does(shape):
    pictures = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (40, *shape), np.uint8))
    moved = shifted(pictures, drawn_moves(len(pictures), 2, torch.Generator().manual_seed(3)))
    found = set()
    for before, after in zip(pictures.numpy(), moved.numpy(), strict=True):
        padded = np.pad(before, [(0, 0)] * (len(shape) - 2) + [(2, 2), (2, 2)], mode="edge")
        cuts = [
            (down, right) for down in range(5) for right in range(5)
            if np.array_equal(padded[..., down : down + 8, right : right + 9], after)
        ]  # fmt: skip
        assert len(cuts) == 1
        found |= set(cuts)
    assert len(found) > 15
    assert torch.equal(shifted(pictures, torch.zeros(len(pictures), 2, dtype=torch.int64)), pictures)


def test_a_frozen_encoder_reads_each_observation_once_and_ends_by_themselves():
    algorithm = made(encoder={"freeze": True}, random_shift=0)
    calls = []
    encoder = algorithm.policy.frozen[IMAGE]
    encoder.register_forward_hook(lambda _net, inputs, _out: calls.append(len(inputs[0])))
    preparation, rng = FeatureCache(algorithm.policy, CPU), np.random.default_rng(0)
    obs, following, shown = (seen(rng, rows=3) for _ in range(3))
    none, task = np.zeros(3), np.zeros(3, np.int32)
    ended = np.array([False, True, False])
    for key in shown:
        shown[key][~ended] = following[key][~ended]
    step = Step(
        shown, following, none.astype(np.float32), ended, none > 0, none > 0, task, task, ended, none, task, none > 0
    )
    preparation.of(obs)
    kept = preparation.transition(Transition(obs, np.zeros((3, 3), np.float32), step))
    preparation.of(shown)
    assert calls == [3, 3, 1]
    with torch.no_grad():
        wanted = [encoder(torch.from_numpy(each[IMAGE])).numpy() for each in (obs, following, shown)]
    for found, features in zip((kept.obs, kept.step.next_obs, kept.step.obs), wanted, strict=True):
        assert np.allclose(found[IMAGE], features, atol=1e-6)


def test_a_learner_behind_another_frozen_encoder_is_not_adopted():
    """What the replay has was made by the own one."""

    def of(seed, init_seed=None):
        training = training_of("sac", {"freeze": True}, random_shift=0).changed(seed=seed, init_seed=init_seed)
        return find(ALGORITHMS, "sac")(Context(training, SPACES, 3, CPU, Experience(training, SPACES)))

    one = of(0)
    before = {name: tensor.clone() for name, tensor in one.state().tensors.items()}
    with refused("learner.other-frozen-encoder"):
        adopt(one, of(1).state().tensors)
    assert all(torch.equal(tensor, before[name]) for name, tensor in one.state().tensors.items())
    adopt(of(0, 5), of(1, 5).state().tensors)
