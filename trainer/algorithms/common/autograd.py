"""Steps down a loss whose derivatives are torch's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainer.algorithms.common.tensors import take_step


def optimizers_of(
    learned: Mapping[str, list[nn.Parameter]],
    device: torch.device,
    kind: Callable[..., torch.optim.Optimizer],
    *,
    slowed: tuple[Sequence[nn.Parameter], float] = ((), 1.0),
    **rates: float,
) -> dict[str, torch.optim.Optimizer]:
    """One of `kind` (Adam, AdamW) for each name, with `rates` as it calls them; in one kernel where `device` has it.

    `slowed`: parameters that learn at this part of the rate.
    """
    fused = device.type in {"cpu", "cuda"}
    made = {name: kind(in_groups(own, slowed), fused=fused, **rates) for name, own in learned.items()}
    for optimizer in made.values():
        for group in optimizer.param_groups:
            group["lr"] *= group["part"]
    return made


def in_groups(parameters: Sequence[nn.Parameter], slowed: tuple[Sequence[nn.Parameter], float]) -> list[dict[str, Any]]:
    """An optimizer's groups: `slowed` parameters learn at a part of the rate. Each says its `part`."""
    slow = {id(parameter) for parameter in slowed[0]} if slowed[1] != 1 else set()
    groups = [(1.0, [each for each in parameters if id(each) not in slow])]
    groups += [(slowed[1], [each for each in parameters if id(each) in slow])] if slow else []
    return [{"params": own, "part": part} for part, own in groups if own]


def descend(
    optimizer: torch.optim.Optimizer, learned: Sequence[Tensor], gradients: Sequence[Tensor], clip: float
) -> None:
    """One step of `optimizer`, whose parameters are `learned`, down their `gradients`.

    `clip`: the largest norm of all of them; 0 does not clip.
    """
    for parameter, gradient in zip(learned, gradients, strict=True):
        parameter.grad = gradient
    if clip:
        nn.utils.clip_grad_norm_(learned, clip)
    take_step(optimizer)


@torch.no_grad()
def follow(targets: nn.Module, nets: nn.Module, tau: float) -> None:
    """Each parameter of `targets` the part `tau` of the way to that of `nets`."""
    torch._foreach_lerp_(list(targets.parameters()), list(nets.parameters()), tau)
