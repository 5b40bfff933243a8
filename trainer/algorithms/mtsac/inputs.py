"""What one update works on, on its way to the learner's device.

All that an update draws or reads on the host is drawn and read here, so that the update itself is a plain function of
tensors: the host need not wait for it, and a GPU can replay it (`trainer.algorithms.common.cuda_graph`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.algorithms.common.sample import Sample
from trainer.buffers.rows import Batch
from trainer.envs.spaces import STATE
from trainer.machine.device import on_device


@dataclass(frozen=True)
class Inputs:
    """A batch of B transitions as in `buffers.rows.Batch`, and standard normal noise [B, A] for the actions that the
    update draws: `next_noise` behind `next_obs`, `current_noise` behind `obs`. All on the learner's device.
    """

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    task: Tensor
    next_noise: Tensor
    current_noise: Tensor


def draw(batch: Batch, noise: torch.Generator) -> dict[str, Tensor]:
    """What an update of `batch` needs of the stream `noise`, which is the CPU's whatever the device."""
    return {name: torch.randn(batch.action.shape, generator=noise) for name in ("next_noise", "current_noise")}


def inputs_of(sample: Sample, device: torch.device) -> Inputs:
    """`sample` on `device`."""
    batch, drawn = sample.batch, sample.drawn
    arrays = batch.obs[STATE], batch.next_obs[STATE], batch.action, batch.reward, batch.terminated, batch.task
    return Inputs(*(on_device(numbers, device) for numbers in (*arrays, drawn["next_noise"], drawn["current_noise"])))


def prepare(batch: Batch, noise: torch.Generator, device: torch.device) -> Inputs:
    """`batch` on `device`, with what it needs of `noise`."""
    return inputs_of(Sample(batch, draw(batch, noise)), device)
