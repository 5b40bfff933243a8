from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from suites import SPACES, act_deterministic, learn, learner_of, state_of

pytest.importorskip("torch")

import torch
from refused import refused

from trainer.algorithms.common import categorical
from trainer.algorithms.common.multitask import actor_and_critics
from trainer.buffers.rows import Batch
from trainer.config.section import TrainingSection, resolve
from trainer.envs.spaces import STATE, ArraySpec
from trainer.machine import products
from trainer.nets.distributions import gaussian, sample
from trainer.nets.mlp import MLP, with_task

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
TASKS = ("reach-v3", "push-v3", "door-open-v3")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def a_learner(**fields):
    values = {"tasks": TASKS, "actor_hidden": (16,), "critic_hidden": (16, 16), "batch_size": 12, **fields}
    return learner_of(resolve(TrainingSection(preset="debug", **values)))


def a_batch(n=12, seed=0, terminated=0.0):
    rng = np.random.default_rng(seed)
    return Batch(
        obs=state_of(rng.standard_normal((n, 39), np.float32)),
        action=rng.uniform(-1, 1, (n, 4)).astype(np.float32),
        reward=rng.random(n, np.float32),
        next_obs=state_of(rng.standard_normal((n, 39), np.float32)),
        terminated=np.full(n, terminated, np.float32),
        task=np.arange(n) % 3,
    )


def everything(learner):
    return learner.state().tensors


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_picture_that_is_called_a_state_is_refused():
    training = resolve(TrainingSection(preset="debug", tasks=TASKS))
    with refused("algorithm.needs-a-row"):
        actor_and_critics(training, replace(SPACES, obs={STATE: ArraySpec((3, 64, 64), "uint8")}), None)


def test_the_log_density_is_that_of_a_squashed_gaussian():
    mean, log_std, noise = torch.tensor([[0.3]]), torch.tensor([[-0.5]]), torch.tensor([[0.7]])
    action, log_prob = sample(mean, log_std, noise)
    std = math.exp(-0.5)
    u = 0.3 + std * 0.7
    gaussian = math.exp(-(0.7**2) / 2) / (std * math.sqrt(2 * math.pi))
    assert action.item() == pytest.approx(math.tanh(u), rel=1e-6)
    assert log_prob.item() == pytest.approx(math.log(gaussian / (1 - math.tanh(u) ** 2)), rel=1e-5)


def test_the_log_density_stays_finite_where_the_squashing_is_saturated():
    _, log_prob = sample(torch.full((1, 4), 30.0), torch.full((1, 4), -10.0), torch.zeros(1, 4))
    # per action: log N(0) at sigma e^-10, minus log(1 - tanh(30)^2) = 2 (log 2 - 30) to the last digit
    assert log_prob.item() == pytest.approx(4 * (10 - 0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - 30)), rel=1e-5)


def test_log_std_stays_in_its_range():
    learner = a_learner()
    x = torch.randn(1000, 42, generator=torch.Generator().manual_seed(0)) * 1000
    _, log_std = gaussian(learner.policy.body(x))
    assert log_std.min() >= -20
    assert log_std.max() <= 2
    assert log_std.max() - log_std.min() > 6


def set_constant_q(critics, values):
    for critic, value in zip(critics, values, strict=True):
        for parameter in critic.parameters():
            parameter.data.zero_()
        critic.layers[-1].bias.data.fill_(value)


def target_of(learner, batch):
    next_x = with_task(torch.from_numpy(batch.next_obs["state"]), torch.from_numpy(batch.task), 3)
    temperature = learner.log_temperature.detach().exp()[torch.from_numpy(batch.task)]
    noise = torch.randn(len(batch.reward), 4, generator=learner.noise)
    target = learner.td_target(
        torch.from_numpy(batch.reward), torch.from_numpy(batch.terminated), next_x, temperature, noise
    )
    mean, log_std = gaussian(learner.policy.body(next_x))
    _, log_prob = sample(mean, log_std, noise)
    return target, log_prob.detach(), temperature


def test_a_target_bootstraps_the_smaller_critic_less_the_tasks_own_entropy_price():
    learner = a_learner(gamma=0.9)
    set_constant_q(learner.target_critics, (5.0, 3.0))
    learner.log_temperature.data = torch.tensor([0.1, 1.0, 2.0]).log()
    batch = a_batch()
    target, log_prob, temperature = target_of(learner, batch)
    expected = torch.from_numpy(batch.reward) + 0.9 * (3.0 - temperature * log_prob)
    assert temperature[:3].tolist() == pytest.approx([0.1, 1.0, 2.0])
    assert torch.allclose(target, expected, atol=1e-6)


def test_a_termination_does_not_bootstrap():
    learner = a_learner()
    set_constant_q(learner.target_critics, (5.0, 3.0))
    batch = a_batch(terminated=1.0)
    assert torch.equal(target_of(learner, batch)[0], torch.from_numpy(batch.reward))


CATEGORICAL = {
    "critic_net": "residual", "critic_loss": "categorical", "value_bins": 5, "value_limit": 2.0, "gamma": 0.5,
}  # fmt: skip


def set_constant_logits(critics, logits):
    for critic in critics:
        critic.last.weight.data.zero_()
        critic.last.bias.data.copy_(torch.tensor(logits))


def distribution_of(learner, batch):
    task = torch.from_numpy(batch.task)
    next_x = with_task(torch.from_numpy(batch.next_obs["state"]), task, 3)
    noise = torch.randn(len(task), 4, generator=learner.noise)
    found = learner.td_distribution(
        torch.from_numpy(batch.reward),
        torch.from_numpy(batch.terminated),
        next_x,
        learner.log_temperature.detach().exp()[task],
        noise,
    )
    mean, log_std = gaussian(learner.policy.body(next_x))
    return found, sample(mean, log_std, noise)[1].detach()


def test_a_distributions_target_bootstraps_less_the_tasks_own_entropy_price():
    learner = a_learner(**CATEGORICAL)
    set_constant_logits(learner.target_critics, [-50.0, -50.0, -50.0, 0.0, -50.0])  # the return is 1 for certain
    learner.log_temperature.data = torch.tensor([0.01, 0.02, 0.04]).log()
    found, log_prob = distribution_of(learner, a_batch())
    mean = found @ torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])
    price = torch.tensor([0.01, 0.02, 0.04])[torch.from_numpy(a_batch().task)]
    expected = torch.from_numpy(a_batch().reward) + 0.5 * (1.0 - price * log_prob)
    assert torch.allclose(mean, expected.clamp(-2, 2), atol=1e-5)


def test_a_distributions_target_averages_both_critics():
    learner = a_learner(**CATEGORICAL, init_temperature=1e-9)
    set_constant_logits(learner.target_critics[:1], [-50.0, -50.0, -50.0, -50.0, 0.0])  # 2 for certain
    set_constant_logits(learner.target_critics[1:], [-50.0, -50.0, 0.0, -50.0, -50.0])  # 0 for certain
    batch = a_batch()
    batch.reward[:] = 0
    found, _ = distribution_of(learner, batch)  # halved: 1 and 0, each half as likely
    assert torch.allclose(found, torch.tensor([0, 0, 0.5, 0.5, 0]).expand(12, 5), atol=1e-5)


def test_a_termination_does_not_bootstrap_a_distribution_either():
    learner = a_learner(**CATEGORICAL)
    set_constant_logits(learner.target_critics, [-50.0, -50.0, -50.0, -50.0, 0.0])
    batch = a_batch(terminated=1.0)
    found, _ = distribution_of(learner, batch)
    assert torch.allclose(found @ torch.tensor([-2.0, -1, 0, 1, 2]), torch.from_numpy(batch.reward), atol=1e-5)


def test_the_categorical_loss_is_the_sum_of_both_mean_cross_entropies():
    learner = a_learner(**CATEGORICAL)
    set_constant_logits(learner.critics[:1], [0.0] * 5)  # ln 5 whatever is wanted; Q 0
    set_constant_logits(learner.critics[1:], [0.0, 0.0, math.log(2), 0.0, 0.0])  # ln 3 where 0 is wanted
    wanted = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]).expand(6, 5)
    _, loss, q = learner.critic_gradient(torch.zeros(6, 42), torch.zeros(6, 4), wanted)
    assert loss.item() == pytest.approx(math.log(5) + math.log(3), rel=1e-6)
    assert q.item() == pytest.approx(0.0, abs=1e-6)


def test_rewards_are_scaled_so_that_no_return_of_their_task_leaves_the_grid():
    learner = a_learner(**CATEGORICAL)  # gamma 0.5: a return is at most twice the largest reward, the grid ends at 2
    task = torch.tensor([0, 0, 1, 2])
    reward = torch.tensor([4.0, -8.0, 2.0, 0.0])
    learner.note_rewards(task, reward)
    assert learner.scaled(task, reward, learner.largest_reward).tolist() == [0.5, -1.0, 1.0, 0.0]
    assert learner.largest_reward.tolist() == [8.0, 2.0, 0.0]
    learner.note_rewards(task, torch.ones(4))
    assert learner.scaled(task, torch.ones(4), learner.largest_reward).tolist()[:3] == [
        0.125,
        0.125,
        0.5,
    ]  # the largest are remembered


def test_the_actor_climbs_what_automatic_differentiation_says():
    for fields in ({}, {"critic_net": "heads"}, {"critic_net": "residual"}, CATEGORICAL):
        learner, plain = a_learner(**fields), a_learner(**fields)
        x = with_task(torch.randn(12, 39, generator=torch.Generator().manual_seed(3)), torch.arange(12) % 3, 3)
        temperature = torch.linspace(0.1, 1.0, 12)
        noise = torch.randn(12, 4, generator=plain.noise)
        _, loss, _ = learner.actor_gradient(x, temperature, noise)
        mean, log_std = gaussian(plain.policy.body(x))
        action, log_prob = sample(mean, log_std, noise)
        outputs = torch.stack([critic(x, action) for critic in plain.critics])
        both = outputs.squeeze(-1) if plain.values is None else categorical.mean(outputs, plain.values)
        value = both.amin(0) if plain.values is None else both.mean(0)
        expected = (temperature * log_prob - value).mean()
        expected.backward()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
        for ours, theirs in zip(learner.policy.parameters(), plain.policy.parameters(), strict=True):
            assert torch.allclose(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6 * float(theirs.grad.abs().max()))


@pytest.mark.parametrize("fields", [{}, {"critic_net": "heads"}], ids=["plain", "heads"])
@pytest.mark.parametrize("hidden", [(16, 16), (24, 16, 8)])
def test_the_critics_descend_what_automatic_differentiation_says(fields, hidden):
    learner, plain = a_learner(critic_hidden=hidden, **fields), a_learner(critic_hidden=hidden, **fields)
    noise = torch.Generator().manual_seed(3)
    x = with_task(torch.randn(12, 39, generator=noise), torch.arange(12) % 3, 3)
    action, goal = torch.rand(12, 4, generator=noise) * 2 - 1, torch.randn(12, generator=noise)
    _, loss, q = learner.critic_gradient(x, action, goal)
    both = torch.stack([critic(x, action).squeeze(-1) for critic in plain.critics])
    expected = (both - goal).square().mean(dim=1).sum()
    gradients = torch.autograd.grad(expected, list(plain.critics.parameters()))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert q.item() == pytest.approx(both.mean().item(), rel=1e-5, abs=1e-7)
    for ours, theirs in zip(learner.critics.parameters(), gradients, strict=True):
        assert torch.allclose(ours.grad, theirs, rtol=1e-5, atol=1e-6 * float(theirs.abs().max()))


def test_all_of_a_net_moves_when_its_optimizer_steps():
    """The modules are windows into what the optimizer sees; a net that left its stack would stay as it is."""
    learner = a_learner()
    before = {name: tensor.clone() for name, tensor in everything(learner).items()}
    for seed in range(3):
        learn(learner, a_batch(seed=seed))
    after = everything(learner)
    still = [name for name in before if name.startswith(("actor", "critics", "targets")) and "bias" not in name]
    assert not [name for name in still if torch.equal(before[name], after[name])]


def test_weight_decay_shrinks_nets_and_leaves_temperatures_alone():
    learner = a_learner(weight_decay=0.5, learning_rate=0.01)
    before = learner.critics[0].layers[0].weight.detach().clone()
    zero = torch.zeros_like(before)
    learner.optimizers["critics"].step()  # the gradients are zero at first
    assert torch.allclose(learner.critics[0].layers[0].weight, before * (1 - 0.5 * 0.01))
    assert not torch.equal(before, zero)
    assert learner.optimizers["temperature"].param_groups[0]["weight_decay"] == 0


def test_the_critic_loss_is_the_sum_of_both_mean_squared_errors():
    learner = a_learner()
    set_constant_q(learner.critics, (1.0, 4.0))
    x, action, goal = torch.zeros(6, 42), torch.zeros(6, 4), torch.full((6,), 2.0)
    _, loss, q = learner.critic_gradient(x, action, goal)
    assert loss.item() == pytest.approx(1.0 + 4.0)
    assert q.item() == pytest.approx(2.5)


def test_the_actor_loss_is_the_priced_density_less_the_smaller_q():
    learner = a_learner()
    set_constant_q(learner.critics, (1.0, 4.0))
    _, loss, log_prob = learner.actor_gradient(torch.zeros(6, 42), torch.full((6,), 0.5), torch.ones(6, 4))
    assert loss.item() == pytest.approx(0.5 * log_prob.mean().item() - 1.0, abs=1e-6)


def test_the_actors_gradient_leaves_the_critics_alone():
    learner = a_learner()
    before = {name: tensor.clone() for name, tensor in learner.critics.state_dict().items()}
    learner.actor_gradient(torch.zeros(6, 42), torch.full((6,), 0.5), torch.ones(6, 4))
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.critics.state_dict().items())
    assert all(not parameter.grad.any() for parameter in learner.critics.parameters())


def test_a_temperature_rises_where_its_own_tasks_entropy_is_too_low_and_only_there():
    learner = a_learner(target_entropy=-4.0)
    before = learner.log_temperature.detach().clone()
    # entropy of task 0 is -6 (below -4), of task 1 -2 (above), task 2 is not in the batch
    gradient, loss = learner.temperature_gradient(torch.tensor([0, 1]), torch.tensor([6.0, 2.0]))
    learner.step_optimizer("temperature", gradient)
    change = learner.log_temperature.detach() - before
    assert loss.item() == pytest.approx(0.0, abs=1e-6)  # log 1 = 0
    assert change[0] > 0
    assert change[1] < 0
    assert change[2] == 0


def test_a_shared_temperature_follows_the_entropy_of_all_tasks_together():
    learner = a_learner(target_entropy=-4.0, shared_temperature=True)
    before = learner.log_temperature.detach().clone()
    # the entropies are -6 and -3, -4.5 on average: below the target, though task 1 alone is above it
    gradient, loss = learner.temperature_gradient(torch.tensor([0, 1]), torch.tensor([6.0, 3.0]))
    learner.step_optimizer("temperature", gradient)
    change = learner.log_temperature.detach() - before
    assert loss.item() == pytest.approx(0.0, abs=1e-6)  # log 1 = 0
    assert learner.log_temperature.grad.tolist() == pytest.approx([-0.5] * 3)
    assert change[0] > 0
    assert change.unique().numel() == 1  # of task 2, too, which is not in the batch


def test_entropy_is_steered_to_minus_the_numbers_of_an_action_where_nobody_says_otherwise():
    env = {"name": "arm"}
    assert learner_of(resolve(TrainingSection(preset="debug", env=env))).target_entropy == -7
    assert learner_of(resolve(TrainingSection(preset="debug", env=env, target_entropy=-1.5))).target_entropy == -1.5


def test_targets_move_a_fraction_tau_of_the_way():
    learner = a_learner(tau=0.25)
    set_constant_q(learner.target_critics, (0.0, 0.0))
    set_constant_q(learner.critics, (4.0, 8.0))
    learner.move_targets(dict.fromkeys(learner.METRICS, torch.zeros(())))
    assert [target.layers[-1].bias.item() for target in learner.target_critics] == [1.0, 2.0]


def test_gradients_are_clipped_to_the_norm_that_is_asked_for():
    learner = a_learner(grad_clip=0.001)
    gradients, _, _ = learner.critic_gradient(torch.ones(6, 42), torch.ones(6, 4), torch.full((6,), 100.0))
    learner.step_optimizer("critics", gradients)
    norms = [parameter.grad.norm() for parameter in learner.critics.parameters()]
    assert torch.stack(norms).norm().item() == pytest.approx(0.001, rel=1e-3)


def test_every_task_sees_its_own_one_hot():
    x = with_task(torch.zeros(3, 39), torch.tensor([2, 0, 1]), 3)
    assert x[:, 39:].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("route", [products.PLAIN, products.ONEDNN])
def test_a_restored_learner_goes_on_bit_by_bit_on_two_threads_with_either_library(route):
    """Nets so wide, and batches so large, that both libraries share the products out."""
    torch.set_num_threads(2)
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        products.use(route)
        learner, copy = (a_learner(seed=s, critic_hidden=(256, 256), batch_size=258) for s in (0, 5))
        learn(learner, a_batch(258))
        copy.load(learner.state())
        for each in (learner, copy):
            for seed in range(1, 5):
                learn(each, a_batch(258, seed=seed))
        assert equal(everything(learner), everything(copy))
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before


def test_playing_greedily_takes_no_noise_and_ignores_the_batch_around_it():
    learner = a_learner()
    state = learner.noise.get_state()
    obs = np.random.default_rng(0).standard_normal((3, 39)).astype(np.float32)
    actions = act_deterministic(learner, state_of(obs), np.array([0, 1, 2], np.int32))
    assert actions.dtype == np.float32
    assert torch.equal(state, learner.noise.get_state())
    assert np.allclose(actions[1:2], act_deterministic(learner, state_of(obs[1:2]), np.array([1])), atol=1e-6)


def test_a_layer_is_drawn_within_one_over_the_root_of_its_inputs():
    net = MLP(100, (50,), 1, torch.Generator().manual_seed(0))
    assert 0.09 < net.layers[0].weight.abs().max() <= 0.1
    assert 0.12 < net.layers[1].weight.abs().max() <= 50**-0.5
