"""An update as the gradients that it descends one after the other: of its whole batch, or of shards of it in their
order.

An algorithm writes an update as a generator of `Descent`s. Whoever runs it makes the steps between two of them, so what
follows in the generator sees the nets as they are then: an actor climbs critics that have taken their step. Of V shards
there are V generators, which go in step: their gradients are added in the order of shards, whoever computed them, and
divided by V.

Shapes: V shards of all processes, S of this one, P numbers that are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.machine.group import Group

#: One step of the optimizer that is called so, down these gradients of its parameters.
Descend = Callable[[str, Sequence[Tensor]], None]


@dataclass(frozen=True)
class Descent:
    """One step: the gradients of each optimizer's parameters, in their order, and what was `measured` on the way, a
    number each. All are means over the rows of a batch.
    """

    gradients: Mapping[str, Sequence[Tensor]]
    measured: Mapping[str, Tensor]


def descend_all(descents: Iterable[Descent], descend: Descend) -> dict[str, Tensor]:
    """Make the steps of an update; all that was measured."""
    measured: dict[str, Tensor] = {}
    for each in descents:
        measured |= each.measured
        for name, gradients in each.gradients.items():
            descend(name, gradients)
    return measured


def of_shards(own: Sequence[Iterator[Descent]], group: Group) -> Iterator[Descent]:
    """The steps of an update, of the shards of this process and, with `group`, of all."""

    def told(descent: Descent) -> tuple[Descent, Tensor]:
        # At once: what the next shard leaves may lie at the same place.
        return descent, flat(_all_of(descent))

    for descents in zip(*(map(told, shard) for shard in own), strict=True):
        mean = mean_in_order(group.gathered(torch.stack([row for _, row in descents])))
        one = descents[0][0]
        parts = iter(parted(mean, _all_of(one)))
        measured = {name: next(parts).clone() for name in one.measured}
        yield Descent({name: [next(parts) for _ in of] for name, of in one.gradients.items()}, measured)


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


def _all_of(descent: Descent) -> list[Tensor]:
    return [*descent.measured.values(), *(each for of in descent.gradients.values() for each in of)]
