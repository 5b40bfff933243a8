"""TD3 against the textbook, written out once more: its updates, the projection, sums of several steps by slow loops."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from suites import learn

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.algorithms.base import Context
from trainer.algorithms.common import categorical
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.envs.collector import Transition
from trainer.envs.spaces import STATE, ArraySpec, Box, Spaces, picked
from trainer.envs.step import Step
from trainer.sharing.policies import Policy, actor_tensors

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
ROWS, TASKS, ENVS, GAMMA = 12, ("a", "b", "c"), 3, 0.9
SPACES = Spaces({STATE: ArraySpec((5,))}, Box(4), TASKS, 10)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def training_of(**more):
    return resolve(
        TrainingSection(
            env={"name": "anchorleg_toys.points:Points", "tasks": TASKS},
            algorithm={
                "name": "td3", "batch_size": ROWS, "buffer_size": 3_000, "learning_rate": 0.01, "gamma": GAMMA, **more
            },
            network={"actor_hidden": (8, 8), "critic_hidden": (9, 9)},
        )
    )  # fmt: skip


def made(num_envs=ENVS, spaces=SPACES, **more):
    training = training_of(**more)
    return find(ALGORITHMS, "td3")(Context(training, spaces, num_envs, CPU, Experience(training, spaces)))


def batch_of(rng, steps=None):
    return Batch(
        obs={STATE: rng.standard_normal((ROWS, 5), np.float32)},
        action=rng.uniform(-1, 1, (ROWS, 4)).astype(np.float32),
        reward=rng.uniform(-1, 1, ROWS).astype(np.float32),
        next_obs={STATE: rng.standard_normal((ROWS, 5), np.float32)},
        terminated=(np.arange(ROWS) % 4 == 0).astype(np.float32),
        task=np.arange(ROWS) % len(TASKS),
        steps=steps,
    )


def projected(probabilities, reward, discount, values):
    """Bellemare et al. 2017, algorithm 1, number by number."""
    found = np.zeros((len(reward), len(values)))
    low, high, width = values[0], values[-1], values[1] - values[0]
    for row in range(len(reward)):
        for probability, value in zip(probabilities[row], values, strict=True):
            place = min((min(max(reward[row] + discount[row] * value, low), high) - low) / width, len(values) - 1)
            below, above = int(np.floor(place)), int(np.ceil(place))
            if below == above:
                found[row, below] += probability
            else:
                found[row, below] += probability * (above - place)
                found[row, above] += probability * (place - below)
    return found


class Textbook:
    """Fujimoto et al. 2018, algorithm 1, with plain nets, losses and Adam of torch."""

    def __init__(self, algorithm):
        self.settings = algorithm.settings
        self.actor, self.target_actor = copy.deepcopy(algorithm.policy.body), copy.deepcopy(algorithm.target_actor)
        self.critics, self.targets = (
            copy.deepcopy(algorithm.nets.critics.nets),
            copy.deepcopy(algorithm.nets.target_critics.nets),
        )
        self.noise = torch.Generator().manual_seed(0)
        self.noise.set_state(algorithm.state().tensors["noise"])
        self.values = None
        if self.settings.critic_loss == "categorical":
            self.values = np.linspace(-self.settings.value_limit, self.settings.value_limit, self.settings.value_bins)
        self.adam = torch.optim.Adam(self.actor.parameters(), 0.01)
        both = [parameter for net in self.critics for parameter in net.parameters()]
        self.critics_adam = torch.optim.Adam(both, 0.01)
        self.count = 0

    def q(self, outputs):
        if self.values is None:
            return outputs[:, 0]
        return (torch.softmax(outputs, 1) * torch.tensor(self.values, dtype=torch.float32)).sum(1)

    def target(self, batch, following, steps):
        noise = torch.randn(ROWS, 4, generator=self.noise)
        with torch.no_grad():
            action = torch.tanh(self.target_actor(following)) + torch.clamp(noise * 0.2, -0.5, 0.5)
            one, other = (net(torch.cat([following, torch.clamp(action, -1, 1)], 1)) for net in self.targets)
            discount = GAMMA**steps * (1 - batch.terminated)
            if self.values is None:
                return torch.from_numpy(batch.reward + discount * torch.min(one, other)[:, 0].numpy()).float()
            smaller = torch.where((self.q(one) < self.q(other)).unsqueeze(1), one, other)
            found = projected(torch.softmax(smaller, 1).numpy(), batch.reward, discount, self.values)
            return torch.tensor(found, dtype=torch.float32)

    def update(self, batch):
        one_hot = torch.eye(len(TASKS))[batch.task]
        x, following = (torch.cat([torch.from_numpy(obs[STATE]), one_hot], 1) for obs in (batch.obs, batch.next_obs))
        target = self.target(batch, following, 1 if batch.steps is None else batch.steps)
        outputs = [net(torch.cat([x, torch.from_numpy(batch.action)], 1)) for net in self.critics]
        if self.values is None:
            loss = sum(torch.nn.functional.mse_loss(one[:, 0], target) for one in outputs)
        else:
            loss = sum(torch.nn.functional.cross_entropy(one, target) for one in outputs)
        self.critics_adam.zero_grad()
        loss.backward()
        self.critics_adam.step()
        self.count += 1
        if self.count % self.settings.policy_delay == 0:
            climbed = self.q(self.critics[0](torch.cat([x, torch.tanh(self.actor(x))], 1)))
            self.adam.zero_grad()
            (-climbed.mean()).backward()
            self.adam.step()
            pairs = [(self.actor, self.target_actor), *zip(self.critics, self.targets, strict=True)]
            for net, target_net in pairs:
                for ours, theirs in zip(target_net.parameters(), net.parameters(), strict=True):
                    ours.data = (1 - self.settings.tau) * ours.data + self.settings.tau * theirs.data
        return loss.item(), torch.stack([self.q(one).mean() for one in outputs]).mean().item()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"policy_delay": 3},
        {"critic_loss": "categorical", "value_bins": 21, "value_limit": 2.0},
        {"critic_loss": "categorical", "value_bins": 11, "value_limit": 0.5, "policy_delay": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("of_several_steps", [False, True])
def test_its_updates_are_those_of_the_textbook(more, of_several_steps):
    algorithm = made(tau=0.1, **more)
    generator = torch.Generator().manual_seed(1)
    for net in (algorithm.nets.critics, algorithm.nets.target_critics, algorithm.target_actor):
        for parameter in net.parameters():  # else one critic is the smaller everywhere, and no action is at its bounds
            parameter.data += 0.5 * torch.randn(parameter.shape, generator=generator)
    book, rng = Textbook(algorithm), np.random.default_rng(0)
    for _ in range(6):
        steps = rng.integers(1, 4, ROWS).astype(np.float32) if of_several_steps else None
        batch = batch_of(rng, steps)
        loss, _, q = learn(algorithm, batch).tolist()
        assert (loss, q) == pytest.approx(book.update(batch), rel=1e-4, abs=1e-6)
        for mine, theirs in (
            ([algorithm.policy.body], [book.actor]),
            ([algorithm.target_actor], [book.target_actor]),
            (algorithm.nets.critics.nets, book.critics),
            (algorithm.nets.target_critics.nets, book.targets),
        ):
            for one, other in zip(mine, theirs, strict=True):
                for ours, its in zip(one.parameters(), other.parameters(), strict=True):
                    assert torch.allclose(ours, its, atol=3e-5)
    assert not torch.equal(algorithm.target_actor[0].layers[0].weight, made().target_actor[0].layers[0].weight)


number = st.floats(-3, 3, width=32)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.tuples(number, st.floats(0, 1, width=32), st.integers(0, 2**16)), min_size=1, max_size=4),
    bins=st.integers(2, 12),
    limit=st.sampled_from([0.5, 1.0, 2.5]),
)
def test_the_projection_is_that_of_a_slow_loop(rows, bins, limit):
    reward, discount, seeds = zip(*rows, strict=True)
    probabilities = np.stack([np.random.default_rng(seed).dirichlet(np.ones(bins)) for seed in seeds])
    grid = categorical.grid(limit, bins, CPU)
    found = categorical.target(
        torch.tensor(probabilities, dtype=torch.float32), torch.tensor(reward), torch.tensor(discount), grid
    )
    slow = projected(probabilities, np.array(reward), np.array(discount), np.linspace(-limit, limit, bins))
    assert np.abs(found.numpy() - slow).max() < 2e-5


def played(rng, steps, num_envs=ENVS, chance=0.12):
    """Transitions of all environments one after another; each episode ends, or is cut, by `chance`."""
    obs, task = rng.standard_normal((num_envs, 5), np.float32), rng.integers(0, len(TASKS), num_envs)
    for _ in range(steps):
        next_obs = rng.standard_normal((num_envs, 5), np.float32)
        terminated, truncated = rng.random(num_envs) < chance, rng.random(num_envs) < chance
        truncated &= ~terminated
        over = terminated | truncated
        shown = np.where(over[:, None], rng.standard_normal((num_envs, 5), np.float32), next_obs)
        next_task = np.where(over, rng.integers(0, len(TASKS), num_envs), task)
        none = np.zeros(num_envs)
        step = Step(
            {STATE: shown}, {STATE: next_obs}, rng.uniform(-1, 1, num_envs).astype(np.float32), terminated, truncated,
            none > 0, task.astype(np.int32), next_task.astype(np.int32), over, none, none.astype(np.int32), none > 0,
        )  # fmt: skip
        yield Transition({STATE: obs}, rng.uniform(-1, 1, (num_envs, 4)).astype(np.float32), step)
        obs, task = shown, next_task


def slow_rows(transitions, n, envs=range(ENVS)):
    """Of each transition of `envs` (task, obs, action, sum, where it led, whether that was an end, steps), where it is
    whole.
    """
    for env in envs:
        for begin, first in enumerate(transitions):
            total, steps = 0.0, 0
            for at in transitions[begin : begin + n]:
                total += GAMMA**steps * float(at.step.reward[env])
                steps += 1
                if at.step.terminated[env] or at.step.truncated[env]:
                    break
            over = at.step.terminated[env] or at.step.truncated[env]
            if steps == n or over:
                ends = at.step.terminated[env]
                yield (
                    int(first.step.task[env]), first.obs[STATE][env].tobytes(), first.action[env].tobytes(), total,
                    at.step.next_obs[STATE][env].tobytes(), int(ends), steps,
                )  # fmt: skip


def rows_in(replay):
    """As `slow_rows`."""
    rows, found = replay.arrays(), []
    for task, size in enumerate(replay.sizes):
        for place in range(task * replay.capacity, task * replay.capacity + size):
            one = {name: array[place] for name, array in rows.items()}
            found.append((
                task, one["obs.state"].tobytes(), one["action"].tobytes(), float(one["reward"]),
                one["next_obs.state"].tobytes(), int(one["terminated"]), int(one.get("steps", 1)),
            ))  # fmt: skip
    return found


def same(found, wanted):
    found, wanted = (sorted(rows, key=lambda row: (row[1], row[2])) for rows in (found, wanted))
    assert [(*row[:3], *row[4:]) for row in found] == [(*row[:3], *row[4:]) for row in wanted]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in wanted], abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_rows_of_several_steps_are_those_of_a_slow_loop(n):
    algorithm, transitions = made(n_step=n), list(played(np.random.default_rng(n), 60))
    for number, transition in enumerate(transitions):
        algorithm.observe(transition, number * ENVS)
    wanted = list(slow_rows(transitions, n))
    same(rows_in(algorithm.off_policy.experience.own), wanted)
    ends = {(row[5], row[6]) for row in wanted}
    assert {(end, steps) for end in (0, 1) for steps in range(1, n + 1)} == ends, "ends and cuts after every count"
    assert ("steps" in algorithm.off_policy.experience.own.fields) == (n > 1)


def test_an_episode_that_does_not_go_on_where_it_stood_is_cut_there():
    algorithm = made(n_step=3)
    before, after = (list(played(np.random.default_rng(seed), 30)) for seed in (1, 2))
    for transition in [*before, *after]:
        algorithm.observe(transition, 0)
    last = before[-1].step
    assert not last.finished.all()
    cut = replace(before[-1], step=replace(last, truncated=~last.terminated))
    same(rows_in(algorithm.off_policy.experience.own), [*slow_rows([*before[:-1], cut], 3), *slow_rows(after, 3)])


@pytest.mark.parametrize("others", [2, 3, 5])
def test_with_another_number_of_environments_those_that_stay_go_on(others):
    algorithm, resumed = made(n_step=4), made(others, n_step=4)
    transitions = list(played(np.random.default_rng(5), 40, max(ENVS, others)))

    def of(transition, count):
        step = {
            name: picked(value, slice(count)) if isinstance(value, dict) else value[:count]
            for name, value in vars(transition.step).items()
        }
        return Transition(picked(transition.obs, slice(count)), transition.action[:count], Step(**step))

    for transition in transitions[:20]:
        algorithm.observe(of(transition, ENVS), 0)
    resumed.load(algorithm.state())
    for transition in transitions[20:]:
        resumed.observe(of(transition, others), 0)
    stay = min(ENVS, others)
    wanted = [
        *slow_rows(transitions, 4, range(stay)),
        *slow_rows(transitions[:20], 4, range(stay, ENVS)),
        *slow_rows(transitions[20:], 4, range(stay, others)),
    ]
    same([*rows_in(algorithm.off_policy.experience.own), *rows_in(resumed.off_policy.experience.own)], wanted)


def test_each_environment_tries_with_a_deviation_of_its_own_until_its_episode_ends():
    algorithm = made(400, exploration_noise=0.05, exploration_noise_max=0.25, random_steps=0)
    with torch.no_grad():  # in the middle, where nothing is clipped
        algorithm.policy.body.layers[-1].weight.zero_()
        algorithm.policy.body.layers[-1].bias.zero_()
    obs, task = {STATE: np.zeros((400, 5), np.float32)}, np.zeros(400, np.int32)

    def spread():
        return np.stack([algorithm.act(obs, task, 0) for _ in range(200)]).std((0, 2))

    before = spread()
    assert 0.04 < before.min() < 0.07
    assert 0.22 < before.max() < 0.28
    assert np.mean(before) == pytest.approx(0.15, abs=0.01)
    (transition,) = played(np.random.default_rng(0), 1, 400)
    algorithm.observe(transition, 0)
    changed = np.abs(spread() - before) > 0.03
    ended = transition.step.finished
    assert not changed[~ended].any()
    assert changed[ended].mean() > 0.4


@pytest.mark.parametrize(("high", "middle"), [(None, 0.1), (0.5, 0.3)])
def test_a_published_policy_brings_the_noise_to_explore_with(high, middle):
    algorithm = made(exploration_noise=0.1, exploration_noise_max=high)
    algorithm.policy.body.layers[-1].bias.data.fill_(0.5)  # the noise stands around tanh of it
    policy = Policy(algorithm.policy.spec, actor_tensors(algorithm.policy))
    obs, task = {STATE: np.zeros((4000, 5), np.float32)}, np.zeros(4000, np.int32)
    wanted = policy.act_deterministic(obs, task)
    tried = policy.act(obs, task, torch.Generator().manual_seed(0))
    assert np.std(tried - wanted) == pytest.approx(middle, rel=0.05)
    assert np.mean(tried - wanted) == pytest.approx(0, abs=0.01)
    assert np.abs(policy.act(obs, task, torch.Generator().manual_seed(0)) - tried).max() == 0
    x = torch.cat([torch.zeros(1, 5), torch.eye(3)[:1]], 1)
    assert np.allclose(wanted[0], torch.tanh(algorithm.policy.body(x))[0].detach().numpy(), atol=1e-6)
