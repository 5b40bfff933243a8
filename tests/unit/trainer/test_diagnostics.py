from __future__ import annotations

import math

import numpy as np
import pytest
from suites import learn, learner_of, state_of

pytest.importorskip("torch")

import torch
from point_run import PointRun
from slot_digest import parts_of

from trainer.algorithms.common.diagnostics import DELTA, TAU, dormant, effective_rank, norm, watched
from trainer.algorithms.common.multitask import measure_batch
from trainer.buffers.rows import Batch
from trainer.config.section import TrainingSection, resolve
from trainer.nets.critics import ResidualCritic
from trainer.nets.mlp import MLP
from trainer.training.features.rows import add_diagnostics
from trainer.training.run import capture, row

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3", "door-open-v3")
KINDS = {
    "mlp": {},
    "heads": {"critic_net": "heads"},
    "residual": {"critic_net": "residual"},
    "categorical": {"critic_net": "residual", "critic_loss": "categorical", "value_bins": 21},
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def a_learner(**fields):
    values = {"tasks": TASKS, "actor_hidden": (16,), "critic_hidden": (16, 16), "batch_size": 12, **fields}
    return learner_of(resolve(TrainingSection(preset="debug", **values)))


def a_batch(task, reward, terminated, seed=0):
    rng, n = np.random.default_rng(seed), len(task)
    return Batch(
        obs=state_of(rng.standard_normal((n, 39), np.float32)),
        action=rng.uniform(-1, 1, (n, 4)).astype(np.float32),
        reward=np.array(reward, np.float32),
        next_obs=state_of(rng.standard_normal((n, 39), np.float32)),
        terminated=np.array(terminated, np.float32),
        task=np.array(task),
    )


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def set_outputs(nets, *biases):
    """Every net gives its constant, whatever goes in."""
    for net, bias in zip(nets, biases, strict=True):
        last = net.last if isinstance(net, ResidualCritic) else net.layers[-1]
        last.weight.data.zero_()
        last.bias.data.copy_(torch.as_tensor(bias, dtype=torch.float32).expand_as(last.bias))


# Dead neurons. TAU is 0.1.


def test_neurons_far_below_their_layers_mean_are_dormant_and_so_is_a_layer_where_nothing_fires():
    assert TAU == 0.1
    # means: (1 + 1 + 0 + 0.04) / 4 = 0.51, so 0.04 is below a tenth of it and 0.06 is not
    assert dormant([torch.tensor([1.0, 1.0, 0.0, 0.04])]) == 0.5
    assert dormant([torch.tensor([1.0, 1.0, 0.0, 0.06])]) == 0.25
    assert dormant([torch.zeros(3), torch.tensor([1.0])]) == 0.75


def test_the_activity_of_a_net_is_what_its_hidden_neurons_fire_over_the_rows():
    net = MLP(2, (3,), 1, stream())
    net.layers[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]))
    net.layers[0].bias.data.copy_(torch.tensor([0.0, 1.0, -5.0]))
    x = torch.tensor([[1.0, 1.0], [-3.0, 2.0]])
    with watched([net]) as seen:
        net(x)
    net(x)  # nobody looks any more
    # first: 1 and relu(-3); second: 3 and 5; third: relu(-6) and relu(-2)
    assert [one.tolist() for one in seen.activity] == [[0.5, 4.0, 0.0]]
    assert [one.tolist() for one in seen.features] == [[[1.0, 3.0, 0.0], [0.0, 5.0, 0.0]]]
    assert dormant(seen.activity) == pytest.approx(1 / 3)  # a tenth of the mean 1.5 is 0.15


# Effective rank. DELTA is 0.01.


def with_singular_values(values, rows, width):
    left, _ = torch.linalg.qr(torch.randn(rows, len(values), generator=stream(1)).double())
    right, _ = torch.linalg.qr(torch.randn(width, len(values), generator=stream(2)).double())
    return (left * torch.tensor(values).double()) @ right.T


@pytest.mark.parametrize(("rows", "width"), [(40, 12), (12, 40)])
@pytest.mark.parametrize(
    ("values", "rank"),
    [
        ([10.0, 1.0, 0.05], 2),  # 11 of 11.05 is above 99 %, 10 is not
        ([10.0, 1.0, 0.12], 3),  # 11 of 11.12 is 98.9 %
        ([10.0, 0.05], 1),
        ([1.0] * 7, 7),
    ],
)
def test_the_effective_rank_counts_the_values_that_make_up_99_percent(rows, width, values, rank):
    assert DELTA == 0.01
    assert effective_rank(with_singular_values(values, rows, width).float()) == rank


# Q and TD errors, by hand.


@pytest.mark.parametrize("kind", ["mlp", "heads", "residual"])
def test_q_and_td_errors_are_the_means_over_each_tasks_rows(kind):
    learner = a_learner(gamma=0.5, **KINDS[kind])
    learner.log_temperature.data.fill_(-math.inf)  # no entropy in the target
    set_outputs(learner.critics, 3.0, 5.0)
    set_outputs(learner.target_critics, 2.0, 4.0)
    found = measure_batch(learner, a_batch([0, 0, 2], [1.0, 7.0, 10.0], [1, 1, 0]), stream())
    assert found.tasks == (
        # |3 - 1|, |5 - 1| and |3 - 7|, |5 - 7|
        {"q": 4.0, "td_error": 3.0},
        {},
        # the target is 10 + 0.5 · min(2, 4) = 11
        {"q": 4.0, "td_error": 7.0},
    )


def test_td_errors_of_categorical_critics_are_in_scaled_returns():
    learner = a_learner(gamma=0.5, value_limit=10.0, **KINDS["categorical"])
    likely = torch.full((21,), -100.0)
    likely[13] = 100.0  # the grid is -10, -9, …, 10: its 13th value is 3
    set_outputs(learner.critics, likely, likely)
    found = measure_batch(learner, a_batch([0, 0], [2.0, 1.0], [1, 1]), stream())
    # the largest reward, 2, bounds a return by 2 / (1 - 0.5) = 4, which is laid on 10: rewards become 5 and 2.5
    assert found.tasks[0] == {"q": pytest.approx(3.0), "td_error": pytest.approx((2 + 0.5) / 2)}
    assert learner.largest_reward.tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_that_an_update_with_the_same_noise_goes_down(kind):
    # so small a step that the critics are the same for the actor's half of the update
    learner = a_learner(learning_rate=1e-12, **KINDS[kind])
    batch = a_batch([0, 1, 2, 0, 1, 2], np.arange(6), [0, 1, 0, 0, 0, 1])
    noise = stream()
    noise.set_state(learner.noise.get_state())
    nets = measure_batch(learner, batch, noise).nets
    learn(learner, batch)
    for name, net in (("actor", learner.policy), ("critics", learner.critics)):
        assert nets[f"{name}_gradient"] == pytest.approx(norm(p.grad for p in net.parameters()), rel=1e-5)
        assert nets[f"{name}_norm"] == pytest.approx(norm(net.parameters()), rel=1e-5)
    assert 0 < nets["critics_rank"] <= 6
    assert 0 <= nets["actor_dormant"] < 1


# What it must not do.


def diagnosed(state, interval):
    """A row of metrics as the journal gets it."""
    found = row(state)
    add_diagnostics(state, found, interval)
    return found


def trained(run_dir, interval):
    """What 60 vector steps come to, with rows all along."""
    run = PointRun(run_dir, random_steps=40, updates_per_step=1.0)
    rows = [diagnosed(run.steps(6).state, interval) for _ in range(10)]
    contents = capture(run.state, {})
    return rows, parts_of(contents)


def test_a_training_with_and_without_diagnoses_comes_to_the_same_numbers(tmp_path):
    rows, *with_them = trained(tmp_path / "with", 1)
    plain, *without = trained(tmp_path / "without", 0)
    assert with_them == without
    assert not any("diagnostics" in value for value in plain)
    assert [value["to"] for value in rows if "diagnostics" in value] == list(range(48, 241, 24))
    last = rows[-1]
    assert {"q", "td_error"} <= last["tasks"]["reach-v3"].keys()
    assert {
        "actor_dormant", "actor_norm", "actor_gradient", "critics_dormant", "critics_norm", "critics_gradient",
        "critics_rank",
    } == last["diagnostics"].keys()  # fmt: skip
    assert not {"q", "td_error"} & plain[-1]["tasks"]["reach-v3"].keys()


def test_a_number_that_is_not_finite_is_left_out_of_the_row(tmp_path):
    run = PointRun(tmp_path, random_steps=40).steps(30)
    run.state.algorithm.critics[0].layers[0].bias.data[0] = math.inf
    found = diagnosed(run.state, 1)["diagnostics"]
    assert "critics_norm" not in found
    assert "critics_rank" not in found
    assert "actor_norm" in found
