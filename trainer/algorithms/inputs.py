"""What one update works on, on its way to the learner's device.

All that an update draws or reads on the host is drawn and read here, so that the update itself is a plain function of
tensors: the host need not wait for it, and a GPU can replay it (`trainer.algorithms.recorded`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.buffers.replay import Batch
from trainer.envs.step import ACT_DIM


@dataclass(frozen=True)
class Inputs:
    """A batch of B transitions as in `buffers.replay.Batch`, and standard normal noise [B, A] for the actions that the
    update draws: `then_noise` behind `next_obs`, `now_noise` behind `obs`. All on the learner's device.
    """

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    task: Tensor
    then_noise: Tensor
    now_noise: Tensor


def prepare(batch: Batch, noise: torch.Generator, device: torch.device) -> Inputs:
    """`batch` on `device`, and as much as it needs of the stream `noise`, which is the CPU's whatever the device."""
    on_host = [torch.from_numpy(getattr(batch, name)) for name in ("obs", "next_obs", "action", "reward", "terminated")]
    on_host += [torch.from_numpy(batch.task), *(normal(len(batch.task), noise) for _ in range(2))]
    return Inputs(*(sent(tensor, device) for tensor in on_host))


def normal(rows: int, noise: torch.Generator) -> Tensor:
    """[rows, A], on the CPU."""
    return torch.randn(rows, ACT_DIM, generator=noise)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`. To a GPU by way of pinned memory, so that the host does not wait for it."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
