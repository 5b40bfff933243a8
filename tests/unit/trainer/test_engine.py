"""The engine's steps against float64 NumPy and torch, and whole nets forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import is_missing

pytest.importorskip("torch")

import torch
from torch import nn

from trainer.machine.building import NoLibraryError, Recipe, find_or_build
from trainer.nets import distributions
from trainer.nets.engine import library
from trainer.nets.engine.plan import EnginePlan, PlainNet, doubles, optimizer_steps
from trainer.nets.mlp import MLP

try:
    library.load()
except NoLibraryError as error:
    is_missing(str(error))

pytestmark = pytest.mark.trainer


def noise(*shape, seed=0, scale=1.0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * scale)


def made(step, sizes, *places):
    plan = EnginePlan()
    plan.add(step, sizes, *places)
    plan.run()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 300), columns=st.integers(1, 70), depth=st.integers(1, 800), turned=st.booleans(),
    packed=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_products_of_any_shape(rows, columns, depth, turned, packed, seed):
    """Of rows or columns of a, and of b as it lies or turned."""
    a, b = noise(rows, depth, seed=seed), noise(depth, columns, seed=seed + 1)
    width = library.load().panel_width
    panels, c = torch.full((depth * -(-columns // width) * width,), torch.nan), torch.full((rows, columns), torch.nan)
    left, right = a.T.contiguous() if turned else a, b.T.contiguous() if packed else b
    plan = EnginePlan()
    plan.add("pack", (depth, columns, *((1, depth) if packed else (columns, 1))), right, panels)
    plan.add("product", (rows, columns, depth, *((1, rows) if turned else (depth, 1)), columns), left, panels, c)
    plan.run()
    exact = a.double() @ b.double()
    bound = a.double().abs() @ b.double().abs() * depth * 2**-24  # each term is rounded once
    assert ((c - exact).abs() <= bound + 1e-30).all()


def test_a_number_of_a_product_depends_on_its_own_row_and_column_alone():
    a, b = noise(61, 500), noise(500, 37, seed=1)
    width = library.load().panel_width

    def product(left, right):
        panels = torch.zeros(500 * -(-right.shape[1] // width) * width)
        c, plan = torch.zeros(len(left), right.shape[1]), EnginePlan()
        plan.add("pack", (500, right.shape[1], right.stride(0), right.stride(1)), right, panels)
        plan.add("product", (len(left), right.shape[1], 500, 500, 1, right.shape[1]), left, panels, c)
        plan.run()
        return c

    whole = product(a, b)
    assert torch.equal(product(a[13:29], b[:, 5:24].contiguous()), whole[13:29, 5:24])


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_activations_and_their_way_back(kind):
    x = torch.cat([noise(40, 7), noise(40, 7, seed=1, scale=1e-4), noise(40, 7, seed=2, scale=30)])
    bias, gradient = noise(7, seed=3, scale=0.1), noise(120, 7, seed=4)
    free = (x.double() + bias.double()).requires_grad_()
    right = (free, free.relu(), free.tanh())[kind]
    right.backward(gradient.double())
    values, back, sums = x.clone(), gradient.clone(), torch.zeros(7)
    made("activate", (120, 7, kind), bias, values)
    torch.testing.assert_close(values.double(), right.detach(), rtol=4e-7, atol=1e-9)
    made("activate_back", (120, 7, kind), values, back, sums)
    torch.testing.assert_close(back.double(), free.grad, rtol=1e-5, atol=3e-7)
    torch.testing.assert_close(sums, back.double().sum(0).float(), rtol=1e-5, atol=1e-5)


def test_nan_goes_through_everything():
    """So that a loss shows it."""
    for kind in (0, 1, 2):
        values = torch.full((1, 1), torch.nan)
        made("activate", (1, 1, kind), torch.zeros(1), values)
        assert values.isnan().all()
    weight, state = noise(4), torch.zeros(3, 4)
    made("adam", (4,), doubles(1e-3, 0.9, 0.999, 1e-8, 0), weight, torch.full((4,), torch.nan), *state[:2], state[2])
    assert weight.isnan().all()
    outputs, made_of = torch.full((1, 2), torch.nan), torch.zeros(4, 1)
    made("squashed_normal", (1, 1, 1), outputs, torch.zeros(1), *made_of)
    assert made_of[:2].isnan().all()


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 70), widths=st.lists(st.integers(1, 40), max_size=3), tanh=st.booleans())
def test_a_net_forward_and_backward(rows, widths, tanh):
    net = MLP(5, widths, 3, torch.Generator().manual_seed(0), activation="tanh" if tanh else "relu")
    plan, compiled, wide = EnginePlan(), PlainNet(net), noise(rows, 9)
    gradient = noise(rows, 3, seed=1)
    compiled.pack(plan)
    values = compiled.forward(plan, wide[:, 2:7])
    compiled.backward(plan, values, plan.rows(gradient))
    plan.run()
    ours = [parameter.grad.clone() for parameter in net.parameters()]
    exact = MLP(5, widths, 3, torch.Generator().manual_seed(0), activation="tanh" if tanh else "relu").double()
    outputs = exact(wide[:, 2:7].double())
    outputs.backward(gradient.double())
    torch.testing.assert_close(values[-1].double(), outputs.detach(), rtol=1e-5, atol=1e-5)
    for mine, right in zip(ours, exact.parameters(), strict=True):
        torch.testing.assert_close(mine.double(), right.grad, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 8.0, 1e4])
def test_squashed_normals_are_exact_from_tiny_to_saturated(scale):
    rows = 130
    outputs, z = noise(rows, 8, scale=scale), noise(rows, 4, seed=1)
    free = outputs.double().requires_grad_()
    right, density = distributions.sample(*distributions.gaussian(free), z.double())
    by_action, by_density = noise(rows, 4, seed=2), noise(rows, seed=3)
    ((right * by_action).sum() + (density * by_density).sum()).backward()
    seen, step, within = torch.zeros(rows, 10), torch.zeros(rows, 4), torch.zeros(rows, 4)
    log_prob, back = torch.zeros(rows), torch.zeros(rows, 8)
    action = seen[:, 6:]
    made("squashed_normal", (rows, 4, 10), outputs, z, action, log_prob, step, within)
    torch.testing.assert_close(action, right.float(), rtol=2e-7, atol=1e-30)
    torch.testing.assert_close(log_prob, density.float(), rtol=2e-7, atol=1e-30)
    assert within.mean() < 1 or scale < 8
    made("squashed_normal_back", (rows, 4, 10), action, step, within, by_action, by_density, back)
    torch.testing.assert_close(back.double(), free.grad, rtol=1e-4, atol=1e-4)


def test_normals_and_their_way_back():
    mean, log_std, action = noise(50, 3), noise(3, seed=1), noise(50, 3, seed=2)
    by_log_prob, bonus = noise(50, seed=3), 0.3
    free, spread = mean.double().requires_grad_(), log_std.double().requires_grad_()
    drawn = torch.distributions.Normal(free, spread.exp())
    log, entropy = drawn.log_prob(action.double()).sum(1), drawn.entropy().sum(1)
    ((log * by_log_prob).sum() - bonus * entropy.mean()).backward()
    log_prob, z, told = torch.zeros(50), torch.zeros(50, 3), torch.zeros(50)
    by_mean, by_std = torch.zeros(50, 3), torch.zeros(3)
    made("normal", (50, 3), mean, log_std, action, log_prob, z, told)
    made("normal_back", (50, 3), z, log_std, by_log_prob, doubles(bonus), by_mean, by_std)
    for found, right in ((log_prob, log), (told, entropy), (by_mean, free.grad), (by_std, spread.grad)):
        torch.testing.assert_close(found.double(), right.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 60.0])
def test_categoricals_and_their_way_back(scale):
    logits, action = noise(50, 6, scale=scale), torch.arange(50) % 6
    by_log_prob, bonus = noise(50, seed=3), 0.3
    free = logits.double().requires_grad_()
    drawn = torch.distributions.Categorical(logits=free)
    ((drawn.log_prob(action) * by_log_prob).sum() - bonus * drawn.entropy().mean()).backward()
    log, log_prob, entropy, back = torch.zeros(50, 6), torch.zeros(50), torch.zeros(50), torch.zeros(50, 6)
    made("categorical", (50, 6), logits, action, log, log_prob, entropy)
    made("categorical_back", (50, 6), log, action, by_log_prob, entropy, doubles(bonus), back)
    for found, right in ((log_prob, drawn.log_prob(action)), (entropy, drawn.entropy()), (back, free.grad)):
        torch.testing.assert_close(found.double(), right.detach(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("width", [1, 7, 64])
def test_layer_normalisation_and_its_way_back(width):
    x, scale, shift = noise(30, width) * 3 + 1, noise(width, seed=1), noise(width, seed=2)
    gradient = noise(30, width, seed=3)
    free, exact = x.double().requires_grad_(), nn.LayerNorm(width).double()
    exact.weight.data, exact.bias.data = scale.double(), shift.double()
    right = exact(free)
    right.backward(gradient.double())
    y, kept, back, by_scale, by_shift = (
        torch.zeros(*shape) for shape in ((30, width), (30, 2), (30, width), (width,), (width,))
    )
    back.copy_(gradient)
    made("normalise", (30, width), x, scale, shift, y, kept)
    made("normalise_back", (30, width), x, scale, kept, back, by_scale, by_shift)
    pairs = (y, right), (back, free.grad), (by_scale, exact.weight.grad), (by_shift, exact.bias.grad)
    for found, wanted in pairs:
        torch.testing.assert_close(found.double(), wanted.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {"lr": 0.01, "eps": 1e-5}),
        (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
        (torch.optim.RMSprop, {"lr": 0.01, "alpha": 0.99, "eps": 1e-5}),
    ],
    ids=["adam", "adamw", "rmsprop"],
)
def test_optimizers_go_on_as_torchs(kind, options):
    """Clipped, over several parameters; torch makes the first step, and the numbers go to and fro."""
    ours, theirs = ([nn.Parameter(noise(3, 4)), nn.Parameter(noise(5, seed=1))] for _ in range(2))
    mine, its = kind(ours, **options), kind([nn.Parameter(each.detach().double()) for each in theirs], **options)
    exact = its.param_groups[0]["params"]
    for parameter in ours:
        parameter.grad = torch.zeros_like(parameter)
    plan = None
    for turn in range(12):
        for parameter, right in zip(ours, exact, strict=True):
            parameter.grad.copy_(noise(*parameter.shape, seed=10 + turn))
            right.grad = parameter.grad.double()
        nn.utils.clip_grad_norm_(exact, 0.5)
        its.step()
        if turn == 0:
            nn.utils.clip_grad_norm_(ours, 0.5)
            mine.step()
            continue
        if plan is None:
            plan = EnginePlan()
            plan.clip_norm([each.grad for each in ours], 0.5)
            optimizer_steps(plan, mine)
        plan.run()
    for parameter, right in zip(ours, exact, strict=True):
        torch.testing.assert_close(parameter.double(), right, rtol=1e-5, atol=1e-6)
        assert float(mine.state[parameter]["step"]) == 12


def test_moments_of_what_never_changes_become_nothing():
    weight, mean, square, count = torch.zeros(1), torch.full((1,), 2e-30), torch.full((1,), 1e-30), torch.zeros(1)
    made("adam", (1,), doubles(1e-3, 0.4, 0.5, 1e-8, 0), weight, torch.zeros(1), mean, square, count)
    assert (mean.item(), square.item()) == (0, 0)


def test_ratios_beyond_the_clip_teach_nothing_unless_they_come_back():
    old, new = torch.zeros(4), torch.tensor([0.5, 0.5, -0.5, 0.0])
    advantage, by_log_prob, sums = torch.tensor([1.0, -1.0, 1.0, 2.0]), torch.zeros(4), doubles(0, 0, 0)
    made("clipped_ratio", (4,), new, old, advantage, doubles(0.2), by_log_prob, sums)
    ratio = new.exp()
    assert by_log_prob.tolist() == pytest.approx([0, float(ratio[1]) / 4, -float(ratio[2]) / 4, -0.5])
    gain = torch.tensor([1.2, -float(ratio[1]), float(ratio[2]), 2.0])
    assert sums.tolist() == pytest.approx([-float(gain.mean()), float((ratio - 1 - new).mean()), 0.75], rel=1e-6)


def test_a_library_with_other_numbers_is_refused(tmp_path):
    fast = Recipe(
        "engine", library.SOURCES, (*library.FLAGS, "-ffast-math", "-ffp-contract=fast"), fault=library.RECIPE.fault
    )
    with pytest.raises(NoLibraryError):
        find_or_build(fast, tmp_path)
