"""What the nets are like inside: dead neurons, rank of the features, norms, and each task's Q and TD error.

Measured on a probe of the replay's own rows, with random streams that are made for the occasion from the seed and the
step. So it takes nothing from the run's streams and changes none of its numbers, and an interrupted run measures the
same digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.nets.critics import ResidualCritic
from trainer.nets.mlp import MLP

#: A neuron whose mean activity is at most this part of its layer's mean is dormant. Sokar et al. 2023 (arXiv
#: 2302.12902) use 0 to 0.1; McLean et al. 2025 report multi-task agents at 0.1.
TAU = 0.1
#: The part of the singular values' sum that the effective rank may leave out (Kumar et al. 2021, arXiv 2010.14498).
DELTA = 0.01
#: Measured with the first row past each multiple of so many updates: it costs as much as 1.4 to 1.9 of them
#: (bench/diagnosing.py), so 0.3 to 0.4 % of the learning, whatever the nets and `metrics_interval`.
INTERVAL_UPDATES = 500


@dataclass(frozen=True)
class Diagnosis:
    """`nets`: name → number. `tasks`: for each task "q" and "td_error", nothing where the probe has no row of it."""

    nets: dict[str, float]
    tasks: tuple[dict[str, float], ...]


@dataclass
class Activity:
    """What went through some nets: the mean activity |h| of each hidden layer's neurons, [width] each, over the rows,
    and the last hidden features of each net, [B, width].
    """

    activity: list[Tensor] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)


@contextmanager
def watched(nets: Iterable[nn.Module]) -> Iterator[Activity]:
    """While it lasts, what goes through `nets` is seen."""
    seen = Activity()

    def after_relu(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        seen.activity.append(torch.relu(output.detach()).mean(0))

    def before_last(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.features.append(inputs[0].detach())

    hooks = []
    for net in nets:
        *hidden, last = layers(net)
        hooks += [layer.register_forward_hook(after_relu) for layer in hidden]
        hooks.append(last.register_forward_pre_hook(before_last))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def layers(net: nn.Module) -> list[nn.Module]:
    """The modules of `net` whose output goes through a ReLU, then the one that makes its outputs.

    Errors: TypeError for a net that is none of ours.
    """
    if isinstance(net, MLP):
        return list(net.layers)
    if isinstance(net, ResidualCritic):
        return [net.norm, *(block.get_submodule("inner_norm") for block in net.blocks), net.last]
    raise TypeError(f"{type(net).__name__} is not a network of this trainer")


def dormant(activity: Iterable[Tensor]) -> float:
    """The part of all neurons whose activity is at most `TAU` of their layer's mean; `activity`: [width] a layer.

    A layer in which nothing fires is dormant as a whole.
    """
    asleep = [one <= TAU * one.mean() for one in activity]
    return float(torch.cat(asleep).cpu().double().mean())  # there are no doubles on a Mac's GPU


def effective_rank(features: Tensor) -> float:
    """How many singular values of `features` [B, d] make up all but `DELTA` of their sum: 0 to min(B, d).

    NaN where a feature is not finite. By the eigenvalues of the smaller product of the features with themselves, in
    double precision: single values below 1e-8 of the largest are lost, which counts for nothing here.
    """
    exact = features.cpu().double()
    if not bool(torch.isfinite(exact).all()):
        return float("nan")
    rows, width = exact.shape
    squared = torch.linalg.eigvalsh(exact @ exact.T if rows < width else exact.T @ exact)
    values = squared.clamp(min=0).sqrt().flip(0)
    total = values.sum()
    if total == 0:
        return 0.0
    return float((values.cumsum(0) < (1 - DELTA) * total).sum() + 1)


def norm(tensors: Iterable[Tensor]) -> float:
    """The Euclidean norm of all `tensors` together."""
    return float(torch.stack([tensor.detach().norm() for tensor in tensors]).norm())


def by_task(task: npt.NDArray[np.int64], num_tasks: int, **values: Tensor) -> tuple[dict[str, float], ...]:
    """The mean of each of `values` [B] over each task's rows."""
    rows = np.bincount(task, minlength=num_tasks)
    sums = {name: np.bincount(task, value.cpu().numpy(), num_tasks) for name, value in values.items()}
    return tuple(
        {name: float(total[k] / rows[k]) for name, total in sums.items()} if rows[k] else {} for k in range(num_tasks)
    )
