"""What algorithms have in common that leave derivatives to torch: SAC and TD3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.envs.spaces import Obs


def read(obs: Obs, task: npt.NDArray[np.integer], device: torch.device) -> tuple[dict[str, Tensor], Tensor]:
    """Observations by key and tasks [B] (int64) as tensors on `device`."""
    seen = {key: torch.from_numpy(array).to(device) for key, array in obs.items()}
    return seen, torch.from_numpy(task.astype(np.int64)).to(device)


def optimizers_of(
    learned: Mapping[str, list[nn.Parameter]],
    device: torch.device,
    kind: Callable[..., torch.optim.Optimizer],
    **rates: float,
) -> dict[str, torch.optim.Optimizer]:
    """One of `kind` (Adam, AdamW) for each name, with `rates` as it calls them; in one kernel where `device` has it."""
    fused = device.type in {"cpu", "cuda"}
    return {name: kind(parameters, fused=fused, **rates) for name, parameters in learned.items()}


def descend(optimizer: torch.optim.Optimizer, learned: Sequence[Tensor], loss: Tensor, clip: float) -> None:
    """One step of `optimizer`, whose parameters are `learned`, down `loss`; nothing else gets a gradient of it.

    `clip`: the largest norm of the gradient; 0 does not clip.
    """
    for parameter, gradient in zip(learned, torch.autograd.grad(loss, learned), strict=True):
        parameter.grad = gradient
    if clip:
        nn.utils.clip_grad_norm_(learned, clip)
    optimizer.step()


@torch.no_grad()
def follow(targets: nn.Module, nets: nn.Module, tau: float) -> None:
    """Each parameter of `targets` the part `tau` of the way to that of `nets`."""
    for ours, theirs in zip(targets.parameters(), nets.parameters(), strict=True):
        ours.lerp_(theirs, tau)
