"""Whether recorded updates leave the very bits that others do here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.common.cuda_graph import CHECKED, GRAPH, KERNELS, WARM_UP
from trainer.buffers.rows import Batch
from trainer.config.settings import OffPolicySettings
from trainer.config.training import Training
from trainer.envs.spaces import F32, Spaces


class Learning(Protocol):
    """What is tried."""

    def learn(self, batch: Batch) -> Tensor:
        """One update."""

    def tensors(self) -> Mapping[str, Tensor]:
        """All that it changes."""


def leaves_same_bits(make: Callable[[str], Learning], training: Training, spaces: Spaces) -> bool:
    """A few updates both ways, by what `make` makes for a way. Errors: RuntimeError where CUDA cannot record."""
    kinds = getattr(training.algorithm, "policy_delay", 1)  # one of so many moves the actor, and is recorded apart
    found = []
    for way in (KERNELS, GRAPH):
        learning = make(way)
        batches = (made_up(training.off_policy, spaces, seed) for seed in range(kinds * (WARM_UP + CHECKED)))
        measured = torch.stack([learning.learn(batch) for batch in batches])
        found.append({**learning.tensors(), "measured": measured.cpu()})
    one, other = found
    return all(torch.equal(one[name], other[name]) for name in one)


def made_up(settings: OffPolicySettings, spaces: Spaces, seed: int) -> Batch:
    """Noise in the shape of a batch."""
    rng, rows = np.random.default_rng(seed), settings.batch_size

    def noise(*shape: int) -> F32:
        return rng.standard_normal((rows, *shape), np.float32)

    obs, next_obs = ({key: noise(*spec.shape) for key, spec in spaces.obs.items()} for _ in range(2))
    ended, task = (noise() > 2).astype(np.float32), np.arange(rows) % len(spaces.tasks)
    return Batch(obs, noise(*spaces.action.shape), noise(), next_obs, ended, task)
