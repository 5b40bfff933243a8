from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from trainer.nets.critics import EMBEDDING, ResidualCritic

pytestmark = pytest.mark.trainer
TASKS = 3


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(n=40, obs=7, actions=2, seed=1):
    noise = stream(seed)
    task = torch.arange(n) % TASKS
    x = torch.cat([torch.randn(n, obs, generator=noise), torch.eye(TASKS)[task]], dim=-1)
    return x, torch.rand(n, actions, generator=noise) * 2 - 1, task


def a_residual(outputs=5, width=16, blocks=2, seed=0):
    return ResidualCritic(7 + TASKS, TASKS, 2, width, blocks, outputs, stream(seed))


def test_a_residual_critic_computes_what_its_docstring_says():
    net = a_residual()
    x, action, task = rows()
    for norm in [m for m in net.modules() if isinstance(m, nn.LayerNorm)]:  # else ones and zeros hide a lost one
        norm.weight.data.uniform_(0.5, 1.5, generator=stream(3))
        norm.bias.data.uniform_(-0.5, 0.5, generator=stream(4))

    def normed(layer, value):
        centred = value - value.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight + layer.bias

    def through(layer, value):
        return value @ layer.weight.t() + layer.bias

    unit = net.embedding / net.embedding.norm(dim=-1, keepdim=True)
    h = normed(net.norm, through(net.first, torch.cat([x[:, :7], unit[task], action], dim=-1))).clamp(min=0)
    for block in net.blocks:
        inner = normed(block.inner_norm, through(block.inner, h)).clamp(min=0)
        h = h + normed(block.outer_norm, through(block.outer, inner))
    assert torch.allclose(net(x, action), through(net.last, h), atol=1e-5)


def test_a_residual_critic_starts_orthogonal_and_from_its_stream_alone():
    torch.manual_seed(1)
    net = a_residual()
    torch.manual_seed(2)
    again = a_residual()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    weight = net.blocks[0].inner.weight
    assert torch.allclose(weight @ weight.t(), 2 * torch.eye(16), atol=1e-5)
    assert net.embedding.shape == (TASKS, EMBEDDING)
    before = torch.get_rng_state()
    a_residual()
    assert torch.equal(before, torch.get_rng_state())
