"""Whether recorded updates of MTSAC leave the very bits that others do here."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from trainer.algorithms.common.cuda_graph import CHECKED, GRAPH, KERNELS, WARM_UP, Record, Updates, record_cuda_graph
from trainer.algorithms.mtsac.inputs import prepare
from trainer.algorithms.mtsac.learner import create, tensors_of
from trainer.algorithms.mtsac.update import learn
from trainer.buffers.rows import Batch
from trainer.config.training import Training
from trainer.envs.spaces import F32, Spaces


def is_same(training: Training, spaces: Spaces, device: torch.device, record: Record = record_cuda_graph) -> bool:
    """A few updates both ways. Errors: RuntimeError where CUDA cannot record."""
    found = []
    for way in (KERNELS, GRAPH):
        learner = create(training, spaces, device)
        updates = Updates(partial(learn, learner), device, way, record)
        measured = [
            updates.update(prepare(_made_up(training, spaces, seed), learner.noise, device))
            for seed in range(WARM_UP + CHECKED)
        ]
        found.append({**tensors_of(learner), "measured": torch.stack(measured).cpu()})
    one, other = found
    return all(torch.equal(one[name], other[name]) for name in one)


def _made_up(training: Training, spaces: Spaces, seed: int) -> Batch:
    """Noise in the shape of a batch."""
    rng, rows = np.random.default_rng(seed), training.off_policy.batch_size

    def noise(*shape: int) -> F32:
        return rng.standard_normal((rows, *shape), np.float32)

    obs, next_obs = ({key: noise(*spec.shape) for key, spec in spaces.obs.items()} for _ in range(2))
    ended, task = (noise() > 2).astype(np.float32), np.arange(rows) % len(spaces.tasks)
    return Batch(obs, noise(*spaces.action.shape), noise(), next_obs, ended, task)
