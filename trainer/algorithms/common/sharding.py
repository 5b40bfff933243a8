"""One update of a batch by several shards and ranks: what it works on, and the optimizer steps that it makes.

An off-policy algorithm writes an update as a generator of `OptimizerStep`s. Its caller makes the step between two
of them, so what follows in the generator sees the nets as they are then: an actor climbs critics that have taken their
step. Of V shards there are V generators, which go in step: their gradients are added in the order of shards, wherever
they were computed, and divided by V.

Shapes: B rows of a batch, V shards of all processes, P numbers that are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import torch
from torch import Tensor

from trainer.buffers.rows import Batch
from trainer.machine.group import Group

_BATCH, _DRAWN = "batch.", "drawn."


@dataclass(frozen=True)
class Sample:
    """A batch, and all that is `drawn` for its update, on the CPU: [B, …] each. Learning draws nothing
    more. Shards and what is packed lie on the host, wherever the batch does.
    """

    batch: Batch
    drawn: Mapping[str, Tensor]

    def shard(self, number: int, shards: int) -> Sample:
        """Every V-th row, beginning with row `number`: as many of each task in each shard, but for one; copied."""
        return _sample_of({name: np.array(array[number::shards]) for name, array in self.arrays.items()})

    def packed(self) -> bytes:
        """For `unpacked`."""
        return safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in self.arrays.items()})

    @classmethod
    def unpacked(cls, data: bytes) -> Sample:
        """What was `packed`."""
        return _sample_of({name: array.copy() for name, array in safetensors.numpy.load(data).items()})

    @cached_property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of it, on the host."""
        return {
            **{f"{_BATCH}{name}": array for name, array in self.batch.arrays().items()},
            **{f"{_DRAWN}{name}": tensor.numpy() for name, tensor in self.drawn.items()},
        }


def _sample_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Sample:
    drawn = {n.removeprefix(_DRAWN): torch.from_numpy(array) for n, array in arrays.items() if n.startswith(_DRAWN)}
    batch = {name.removeprefix(_BATCH): array for name, array in arrays.items() if name.startswith(_BATCH)}
    return Sample(Batch.of(batch, batch.pop("task")), drawn)


@dataclass(frozen=True)
class OptimizerStep:
    """The gradients of each optimizer's parameters, in their order, and what was `measured` on the way, a number each.
    All are means over the rows of a batch.
    """

    gradients: Mapping[str, Sequence[Tensor]]
    measured: Mapping[str, Tensor]


def take_steps(
    steps: Iterable[OptimizerStep], step_optimizer: Callable[[str, Sequence[Tensor]], None]
) -> dict[str, Tensor]:
    """Make the steps of an update, by `step_optimizer` (an optimizer's name, gradients); all that was measured."""
    measured: dict[str, Tensor] = {}
    for step in steps:
        measured |= step.measured
        for name, gradients in step.gradients.items():
            step_optimizer(name, gradients)
    return measured


def in_step(own: Sequence[Iterator[OptimizerStep]], group: Group) -> Iterator[OptimizerStep]:
    """The mean steps of an update, of the shards of this process and, with `group`, of all."""

    def told(step: OptimizerStep) -> tuple[OptimizerStep, Tensor]:
        # At once: what the next shard leaves may lie at the same place.
        return step, flat(_all_of(step))

    for steps in zip(*(map(told, shard) for shard in own), strict=True):
        mean = mean_in_order(group.gathered(torch.stack([row for _, row in steps])))
        one = steps[0][0]
        parts = iter(parted(mean, _all_of(one)))
        measured = {name: next(parts).clone() for name in one.measured}
        yield OptimizerStep({name: [next(parts) for _ in of] for name, of in one.gradients.items()}, measured)


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """[P] a copy of all their numbers, one after the other."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def parted(row: Tensor, like: Iterable[Tensor]) -> list[Tensor]:
    """What `flat` made of tensors of these shapes: windows into `row`."""
    found, at = [], 0
    for tensor in like:
        found.append(row[at : at + tensor.numel()].view(tensor.shape))
        at += tensor.numel()
    return found


def mean_in_order(rows: Tensor) -> Tensor:
    """Of [V, P]: the rows added one after the other, divided by V. A sum over an axis promises no order."""
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total / len(rows)


def _all_of(step: OptimizerStep) -> list[Tensor]:
    return [*step.measured.values(), *(each for of in step.gradients.values() for each in of)]
