"""PPO and A2C against the textbook: losses and gradients by torch, advantages by their definition, scales by NumPy."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch
from torch import nn

from trainer.algorithms.base import Context
from trainer.algorithms.common.cuda_graph import ENGINE, KERNELS
from trainer.buffers.rollout import Rollout
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.envs.collector import Transition
from trainer.envs.spaces import STATE, ArraySpec, Box, Discrete, Spaces
from trainer.envs.step import Step
from trainer.nets.normalise import Normaliser, RunningMoments, in_three, summed_up

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
ENVS, STEPS = 4, 6
SPACES = {
    "box": Spaces({STATE: ArraySpec((3,))}, Box(2), ("a", "b"), 10),
    "discrete": Spaces({STATE: ArraySpec((3,))}, Discrete(5), ("a", "b"), 10),
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(params=[KERNELS, ENGINE])
def way(request):
    return request.param


def learner(name, spaces, way=ENGINE, **more):
    section = TrainingSection(
        env="anchorleg_toys.points:Points",
        algorithm={"name": name, "rollout_steps": STEPS, "entropy_coef": 0.01, **more},
        num_envs=ENVS,
        network={"actor_hidden": (8, 7), "critic_hidden": (8,)},
    )
    return find(ALGORITHMS, name)(Context(resolve(section), spaces, ENVS, CPU, None, way=way))


def play(algorithm, spaces, rng, steps=STEPS):
    """Made-up steps, some of which end an episode: what came of each."""
    played = []
    task = (np.arange(ENVS) % 2).astype(np.int32)
    obs = {STATE: rng.standard_normal((ENVS, 3)).astype(np.float32)}
    for number in range(steps):
        action = algorithm.act(obs, task, number * ENVS)
        after, other = ({STATE: rng.standard_normal((ENVS, 3)).astype(np.float32)} for _ in range(2))
        terminated = rng.random(ENVS) < 0.2
        finished = terminated | (rng.random(ENVS) < 0.2)
        step = Step(
            obs=other, next_obs=after, reward=rng.standard_normal(ENVS).astype(np.float32), terminated=terminated,
            truncated=finished & ~terminated, success=terminated, task=task, next_task=task, finished=finished,
            episode_return=np.zeros(ENVS), episode_length=np.ones(ENVS, np.int32), episode_success=terminated,
            episode_measures=np.zeros((ENVS, 0)),
        )  # fmt: skip
        algorithm.observe(Transition(obs, action, step), number * ENVS)
        obs = step.obs
        played.append(step)
    return played


def shards_of(algorithm):
    return list(algorithm.rollouts.shards.values())


def next_rows(algorithm, shard):
    rollouts = algorithm.rollouts
    return shard.order[rollouts.at : rollouts.at + rollouts._batch_size]


def whole_lesson(shard):
    """All steps in the order in which they were played."""
    order, shard.order = shard.order, torch.arange(len(shard.lesson))
    batch, shard.order = shard.minibatch(0, len(order)), order
    return batch


def textbook_loss(name, algorithm, shard, policy, critic):
    """By torch's own distributions and derivatives, from what `shard` played."""
    rollout, chosen, rows = shard.rollout, algorithm.settings, next_rows(algorithm, shard)
    seen = torch.from_numpy(rollout.in_a_row("obs.state")[rows])
    task = torch.from_numpy(rollout.in_a_row("task")[rows])
    x = torch.cat([seen, torch.eye(2)[task]], 1)
    outputs = policy.body(x)
    action = torch.from_numpy(rollout.in_a_row("action")[rows])
    if policy.spec.distribution == "normal":
        drawn = torch.distributions.Normal(outputs, policy.free.exp())
        log, entropy = drawn.log_prob(action).sum(1), drawn.entropy().sum(1)
    else:
        drawn = torch.distributions.Categorical(logits=outputs)
        log, entropy = drawn.log_prob(action), drawn.entropy()
    batch = shard.minibatch(algorithm.rollouts.at, len(rows))
    before, advantage, target = batch.log_prob, batch.advantage, batch.returns
    if chosen.normalise_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    if name == "ppo":
        ratio = torch.exp(log - before)
        loss = -torch.min(ratio * advantage, torch.clamp(ratio, 1 - chosen.clip, 1 + chosen.clip) * advantage).mean()
    else:
        loss = -(log * advantage).mean()
    value_loss = nn.functional.mse_loss(critic(x)[:, 0], target)
    return loss, value_loss, loss + chosen.value_coef * value_loss - chosen.entropy_coef * entropy.mean()


def what_the_nets_said_while_they_played(algorithm, policy, critic):
    """Densities and values of the whole rollout are those of its steps."""
    batch = whole_lesson(shards_of(algorithm)[0])
    inputs = batch.inputs
    outputs = policy.of_inputs(inputs.policy)
    assert torch.allclose(policy.distribution.log_prob(outputs, batch.action), batch.log_prob, atol=1e-4)
    assert torch.allclose(critic(inputs.critics)[:, 0], batch.returns - batch.advantage, atol=1e-4)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_updates_are_those_of_the_textbook(name, kind, shards, way):
    """Of several shards: each one's loss by torch, the mean of them, one step."""
    spaces = SPACES[kind]
    more = {"batch_size": 7 if shards == 1 else 6, "epochs": 3, "clip": 0.01} if name == "ppo" else {}
    algorithm = learner(name, spaces, way, shards=shards, learning_rate=0.01, **more)
    policy, critic = copy.deepcopy(algorithm.policy), copy.deepcopy(algorithm.nets.critic)
    free = [policy.free] if kind == "box" else []
    learned = [*policy.body.parameters(), *critic.parameters(), *free]
    if name == "ppo":
        optimizer = torch.optim.Adam(learned, lr=0.01, eps=1e-5)
    else:
        optimizer = torch.optim.RMSprop(learned, lr=0.01, alpha=0.99, eps=1e-5)
    rng, updates = np.random.default_rng(0), 0
    for _ in range(2):
        play(algorithm, spaces, rng)
        what_the_nets_said_while_they_played(algorithm, policy, critic)
        while algorithm.must_learn:
            parts = [textbook_loss(name, algorithm, shard, policy, critic) for shard in shards_of(algorithm)]
            loss, value_loss, whole = (sum(each) / shards for each in zip(*parts, strict=True))
            measured = dict(zip(algorithm.METRICS, algorithm.update().tolist(), strict=True))
            assert measured["policy_loss"] == pytest.approx(loss.item(), rel=1e-3, abs=1e-5)
            assert measured["value_loss"] == pytest.approx(value_loss.item(), rel=1e-3)
            optimizer.zero_grad()
            whole.backward()
            nn.utils.clip_grad_norm_(learned, 0.5)
            optimizer.step()
            mine = [*algorithm.nets.actor.body.parameters(), *algorithm.nets.critic.parameters()]
            mine += [algorithm.nets.actor.free] if kind == "box" else []
            assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(mine, learned, strict=True))
            updates += 1
    assert updates == (2 * 3 * 4 if name == "ppo" else 2)


@pytest.mark.parametrize("shards", [1, 2])
def test_the_steps_that_show_that_it_went_too_far_are_not_learned_from(shards, way):
    """As stable-baselines3: it is seen before the step of the optimizer, and ends the rollout. Whoever goes on from
    before any update comes to the same.
    """
    spaces, more = SPACES["box"], {"learning_rate": 0.01, "batch_size": 8, "target_kl": 1e-3}

    def begun():
        return learner("ppo", spaces, way, shards=shards, **more)

    algorithm, again = begun(), begun()
    play(algorithm, spaces, np.random.default_rng(0))
    learned, distances = algorithm.nets.learned, []
    while algorithm.must_learn:
        before = [each.detach().clone() for each in learned]
        again.load(algorithm.state())
        measured = algorithm.update()
        assert torch.equal(again.update(), measured)
        assert again.must_learn == algorithm.must_learn
        distances.append(float(measured[algorithm.METRICS.index("kl")]))
        is_learned = not all(torch.equal(each, then) for each, then in zip(learned, before, strict=True))
        assert is_learned == (distances[-1] <= 1.5e-3)
    assert len(distances) < 30
    assert distances[-1] > 1.5e-3
    assert max(distances[:-1]) <= 1.5e-3
    assert [shard.rollout.steps for shard in shards_of(algorithm)] == [0] * shards


@given(data=st.data(), gamma=st.floats(0, 1), lam=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_advantages_are_the_sum_of_errors_up_to_the_episodes_end(data, gamma, lam):
    steps, envs = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    numbers = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rollout = Rollout(SPACES["box"], steps, envs)
    for name in ("reward", "bootstrap"):
        rollout.fields[name][:] = numbers.standard_normal((steps, envs))
    value = numbers.standard_normal((steps, envs)).astype(np.float32)
    rollout.fields["terminated"][:] = numbers.random((steps, envs)) < 0.3
    rollout.fields["ended"][:] = (rollout.fields["terminated"] > 0) | (numbers.random((steps, envs)) < 0.3)
    last = numbers.standard_normal(envs).astype(np.float32)
    found = rollout.advantages(value, last, gamma, lam)
    f = rollout.fields
    for env in range(envs):
        for start in range(steps):
            total, weight = 0.0, 1.0
            for at in range(start, steps):
                if f["terminated"][at, env]:
                    following = 0.0
                elif f["ended"][at, env]:
                    following = f["bootstrap"][at, env]
                else:
                    following = value[at + 1, env] if at + 1 < steps else last[env]
                total += weight * (f["reward"][at, env] + gamma * following - value[at, env])
                weight *= gamma * lam
                if f["ended"][at, env]:
                    break
            assert found[start, env] == pytest.approx(total, abs=1e-4)


def test_running_moments_are_those_of_all_rows_and_a_policy_scales_to_the_bit_alike():
    rng = np.random.default_rng(1)
    moments, parts, seen = RunningMoments(3), RunningMoments(3), []
    for size in (1, 5, 8, 64):
        rows = (rng.standard_normal((size, 3)) * [1e-3, 1, 50] + [100, 0, -3]).astype(np.float32)
        moments.add(rows)
        for part in np.array_split(rows, min(size, 3)):
            parts.merge(*summed_up(part))
        seen.append(rows)
    every = np.concatenate(seen).astype(np.float64)
    assert parts.count == moments.count
    assert parts.mean == pytest.approx(moments.mean)
    assert parts.variance == pytest.approx(moments.variance)
    assert moments.mean == pytest.approx(every.mean(0), abs=1e-3)
    assert moments.variance[1:] == pytest.approx(every.var(0)[1:], rel=1e-3)
    net = Normaliser(3, torch.Generator())
    net.copy_scale(moments)
    assert torch.equal(
        net(torch.from_numpy(every.astype(np.float32))), torch.from_numpy(moments.scaled(every.astype(np.float32)))
    )


def test_a_scale_survives_the_rounding_of_published_weights():
    rng = np.random.default_rng(2)
    values = (rng.standard_normal(1000) * 10.0 ** rng.integers(-6, 6, 1000)).astype(np.float32)
    parts = torch.from_numpy(in_three(values))
    assert torch.equal(parts.to(torch.bfloat16).to(torch.float32), parts)
    assert torch.equal(parts.sum(0), torch.from_numpy(values))


def test_rewards_are_scaled_as_stable_baselines_scales_them():
    normalize = pytest.importorskip("stable_baselines3.common.vec_env.vec_normalize")
    theirs = normalize.RunningMeanStd(shape=())
    algorithm, sums = learner("ppo", SPACES["box"], gamma=0.9, batch_size=6, rollout_steps=50), np.zeros(ENVS)
    played = play(algorithm, SPACES["box"], np.random.default_rng(3), 50)
    for step, kept in zip(played, shards_of(algorithm)[0].rollout.fields["reward"], strict=True):
        sums = sums * 0.9 + step.reward
        theirs.update(sums)
        assert kept == pytest.approx(np.clip(step.reward / np.sqrt(theirs.var + 1e-8), -10, 10), rel=1e-5)
        sums[step.finished] = 0


@pytest.mark.parametrize("shards", [1, 2])
def test_an_episode_that_a_resume_could_not_bring_back_is_cut_where_it_was_left(shards):
    """By environment: 0 goes on, 1 and 3 begin anew, of which 3's episode had ended anyway."""
    task, obs = np.zeros(ENVS, np.int32), {STATE: np.ones((ENVS, 3), np.float32)}
    left = {STATE: np.arange(ENVS * 3, dtype=np.float32).reshape(ENVS, 3)}
    finished = np.array([False, False, True, True])
    step = Step(
        obs=left, next_obs=left, reward=np.ones(ENVS, np.float32), terminated=finished,
        truncated=np.zeros(ENVS, np.bool_), success=finished, task=task, next_task=task, finished=finished,
        episode_return=np.zeros(ENVS), episode_length=np.ones(ENVS, np.int32), episode_success=finished,
        episode_measures=np.zeros((ENVS, 0)),
    )  # fmt: skip

    def begun():
        return learner("ppo", SPACES["box"], shards=shards, batch_size=6)

    def rollouts(algorithm, name):
        return np.concatenate([one.rollout.fields[name][0] for one in shards_of(algorithm)])

    def sums(algorithm):
        return np.concatenate([one._reward_sums for one in shards_of(algorithm)])

    first = begun()
    first.observe(Transition(obs, first.act(obs, task, 0), step), 0)
    state, found = first.state(), {}
    for case, shown in (("goes on", left[STATE]), ("anew", left[STATE] * [[1], [0], [1], [0]])):
        found[case] = begun()
        found[case].load(state)
        found[case].act({STATE: shown.astype(np.float32)}, task, ENVS)
    assert rollouts(found["goes on"], "ended").tolist() == [0, 0, 1, 1]
    assert rollouts(found["anew"], "ended").tolist() == [0, 1, 1, 1]
    assert rollouts(found["anew"], "terminated").tolist() == [0, 0, 1, 1]
    worth = rollouts(found["anew"], "bootstrap")
    nets = found["anew"].nets
    expected = nets.value(nets.encoder_input.scaled_alone({STATE: left[STATE][1:2]}), task[:1])
    assert worth.tolist() == [0, pytest.approx(float(expected[0])), 0, 0]
    assert abs(worth[1]) > 0
    assert sums(found["goes on"]).tolist() == [1, 1, 0, 0]
    assert sums(found["anew"]).tolist() == [1, 0, 0, 0]


def test_shards_draw_from_streams_of_their_own_and_see_one_scale():
    algorithm = learner("ppo", SPACES["box"], shards=2, batch_size=6)
    obs = {STATE: np.zeros((ENVS, 3), np.float32)}
    actions = algorithm.act(obs, np.zeros(ENVS, np.int32), 0)
    assert len(np.unique(actions, axis=0)) == ENVS
    assert algorithm.nets.encoder_input.moments[STATE].count == pytest.approx(ENVS, rel=1e-3)
