"""Stacked nets against the nets that they are made of."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from trainer.nets.fused import Stacked
from trainer.nets.mlp import MLP

pytestmark = pytest.mark.trainer


def nets(count, hidden=(8, 6)):
    init = torch.Generator().manual_seed(0)
    return [MLP(5, hidden, 3, init) for _ in range(count)]


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_every_number_lies_in_one_place_once():
    plain = nets(2)
    stack = Stacked(plain)
    stack.flat.data.copy_(torch.arange(float(stack.flat.numel())))
    found = torch.cat([parameter.flatten() for net in plain for parameter in net.parameters()])
    assert sorted(found.tolist()) == list(range(stack.flat.numel()))
    stack.flat.grad.copy_(stack.flat)
    assert all(torch.equal(p.grad, p) for net in plain for p in net.parameters())


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_of_few_rows_numpy_makes_the_same_and_of_many_torch_is_asked(activation):
    net = MLP(5, (8, 6), 3, torch.Generator().manual_seed(0), activation=activation)
    stack, x = Stacked([net]), noise(7, 5)
    assert torch.allclose(torch.from_numpy(stack.forward_few(x.numpy())), stack.forward(x)[-1][0], atol=1e-6)
    stack.flat.data.mul_(1.5)
    assert torch.allclose(torch.from_numpy(stack.forward_few(x.numpy())), net(x), atol=1e-6), "it sees what is learned"
    assert stack.is_quick_for(8)
    assert not stack.is_quick_for(10_000)
    assert not Stacked(nets(2)).is_quick_for(1)
