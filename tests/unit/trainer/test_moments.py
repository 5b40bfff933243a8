"""Optimizers' moments of units that never fire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
from torch import nn

from trainer.algorithms.common.optimizers import optimizer_step
from trainer.algorithms.common.parts import moments_of

#: Moments of before are below the smallest normal number after so many steps.
STEPS = 1_200
KINDS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "Adam": partial(torch.optim.Adam, betas=(0.9, 0.9), fused=True),
    "AdamW": partial(torch.optim.AdamW, betas=(0.9, 0.9)),
    "RMSprop": partial(torch.optim.RMSprop, alpha=0.9),
}


def moved(kind: str, by: Callable[[torch.optim.Optimizer], None]) -> dict[str, torch.Tensor]:
    """The moments after one step along a gradient, and many of which it is 0 but for one number."""
    parameter = nn.Parameter(torch.ones(64))
    optimizer = KINDS[kind]([parameter])
    for step in range(STEPS):
        parameter.grad = torch.full((64,), 1.0 if step == 0 else 0.0)
        parameter.grad[0] = 1.0
        by(optimizer)
    return {name: moment for name, moment in moments_of(optimizer).items() if moment.ndim}


def denormals(moments: dict[str, torch.Tensor]) -> int:
    """How many there are."""
    smallest = torch.finfo(torch.float32).tiny
    return sum(int(((moment != 0) & (moment.abs() < smallest)).sum()) for moment in moments.values())


@pytest.mark.parametrize("kind", KINDS)
def test_no_moment_stays_a_denormal(kind: str) -> None:
    assert denormals(moved(kind, lambda optimizer: optimizer.step()))  # as torch leaves them
    moments = moved(kind, optimizer_step)
    assert denormals(moments) == 0
    assert all(float(moment[0]) > 0.9 for moment in moments.values())  # of what has a gradient
    assert all(not moment[1:].any() for moment in moments.values())
