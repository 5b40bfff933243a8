"""Steps of torch's optimizers, and targets that follow slowly."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

#: How often moments are looked through, in steps: that takes as long as a step.
_LOOKED_THROUGH = 100
#: torch counts them in float32, which stays at this number: from there on they are looked through at each step.
_COUNTED = 2**24
_NOTHING = 1e-30


def optimizers_of(
    learned: Mapping[str, Sequence[nn.Parameter]],
    device: torch.device,
    kind: Callable[..., torch.optim.Optimizer],
    *,
    slowed: tuple[Sequence[nn.Parameter], float] = ((), 1.0),
    **rates: float,
) -> dict[str, torch.optim.Optimizer]:
    """Create one optimizer per name: `kind` (Adam, AdamW) with `rates`; in one kernel where `device` has it.

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


def step_along(
    optimizer: torch.optim.Optimizer, learned: Sequence[Tensor], gradients: Sequence[Tensor], grad_clip: float = 0.0
) -> None:
    """One optimizer step of its parameters, which are `learned`, down their `gradients`.

    `grad_clip`: the largest norm of all of them together; 0 does not clip.
    """
    for parameter, gradient in zip(learned, gradients, strict=True):
        if parameter.requires_grad:
            parameter.grad = gradient
        else:
            parameter.grad.copy_(gradient)  # type: ignore[union-attr] # of stacked nets, whose layers' are windows into it
    if grad_clip:
        nn.utils.clip_grad_norm_(learned, grad_clip)
    optimizer_step(optimizer)


@torch.no_grad()
def bare_step(optimizer: torch.optim.Optimizer) -> None:
    """`optimizer.step()` without what torch lays around it: a profiler, hooks, and the import of torch's compiler (more
    than a second at a job's first update), which is used nowhere here. The same operations, so the same bits.
    """
    inspect.unwrap(type(optimizer).step)(optimizer)


@torch.no_grad()
def optimizer_step(optimizer: torch.optim.Optimizer) -> None:
    """One step of `optimizer`; each hundredth on a CPU makes moments below 1e-30 zeros.

    Those of a unit that never fires would else shrink to denormals and stay there, as 0.9 of the smallest is the
    smallest again, and processors take many times as long over each.
    """
    bare_step(optimizer)
    for parameter, moments in optimizer.state.items():
        if parameter.device.type != "cpu":
            return  # as all others; and on a GPU nothing may be read while a graph is recorded
        step = int(moments["step"])
        if step % _LOOKED_THROUGH and step < _COUNTED:
            return
        for moment in moments.values():
            if moment.ndim:
                moment.masked_fill_(moment.abs() < _NOTHING, 0.0)  # NaN stays


def clip_gradients(parameters: Sequence[nn.Parameter], limit: float) -> None:
    """As `nn.utils.clip_grad_norm_`, in a third of its calls."""
    found = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([torch.linalg.vector_norm(gradient) for gradient in found]).norm()
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    for gradient in found:
        gradient.mul_(scale)


@torch.no_grad()
def polyak_update(targets: nn.Module, nets: nn.Module, tau: float) -> None:
    """Each parameter of `targets` the part `tau` of the way to that of `nets`."""
    torch._foreach_lerp_(list(targets.parameters()), list(nets.parameters()), tau)
