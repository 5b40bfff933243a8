"""Whether recorded updates leave the very bits that others do here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from trainer.algorithms.base import Context
from trainer.algorithms.common.cuda_graph import GRAPH, KERNELS, WARM_UP, Record, record_cuda_graph
from trainer.algorithms.common.off_policy import rounding
from trainer.algorithms.common.sharding import Sample
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.settings import OffPolicySettings
from trainer.config.training import Training
from trainer.envs.spaces import F32, Spaces

#: Recorded updates that must leave the bits of others before a training makes any: a moment, at each start.
CHECKED = 5
#: As much of CUDA's own words as a sentence can bear.
_QUOTE = 160


def leaves_same_bits(
    kind: Any, training: Training, spaces: Spaces, device: torch.device, record: Record = record_cuda_graph
) -> bool:
    """A few updates of the algorithm `kind` both ways. Errors: RuntimeError where CUDA cannot record."""
    apart = training.model_copy(update={"replay_on": "host"})  # it stays empty, and takes no memory
    updates = WARM_UP + CHECKED
    updates *= getattr(training.algorithm, "policy_delay", 1)  # one of so many moves the actor, and is recorded apart
    found = []
    for way in (KERNELS, GRAPH):
        algorithm = kind(Context(apart, spaces, 1, device, Experience(apart, spaces)))
        algorithm.launch(way, record)
        batches = (made_up(training.off_policy, spaces, seed) for seed in range(updates))
        measured = [algorithm.learn(Sample(batch, algorithm.draw(batch, algorithm.noise))) for batch in batches]
        found.append({**algorithm.state().tensors, "measured": torch.stack(measured).cpu()})
    one, other = found
    return all(torch.equal(one[name], other[name]) for name in one)


def choose_recorded(
    kind: Any, training: Training, spaces: Spaces, device: torch.device, tried: Callable[..., bool] = leaves_same_bits
) -> tuple[str, str | None]:
    """As `Algorithm.choose_launch_mode`, for a `kind` that can `launch` a graph: a graph where that is asked for, there
    is a GPU, and recorded updates leave the very bits of others here, without which a resume would not be exact. That
    is tried each time. `spaces`: of what is kept.
    """
    if not training.cuda_graph or device.type != "cuda":
        return KERNELS, None
    if training.algorithm.shards > 1:
        return KERNELS, "training.cuda_graph is ignored: it does not support several shards"
    try:
        with rounding(training.off_policy, device):
            if tried(kind, training, spaces, device):
                return GRAPH, None
        why = "its updates give other bits here"
    except RuntimeError as error:  # torch's for whatever CUDA says
        why = f"it cannot be captured here ({' '.join(str(error).split())[:_QUOTE]})"
    return KERNELS, f"training.cuda_graph is ignored: {why}"


def made_up(settings: OffPolicySettings, spaces: Spaces, seed: int) -> Batch:
    """Noise in the shape of a batch."""
    rng, rows = np.random.default_rng(seed), settings.batch_size

    def noise(*shape: int) -> F32:
        return rng.standard_normal((rows, *shape), np.float32)

    obs, next_obs = ({key: noise(*spec.shape) for key, spec in spaces.obs.items()} for _ in range(2))
    ended, task = (noise() > 2).astype(np.float32), np.arange(rows) % len(spaces.tasks)
    return Batch(obs, noise(*spaces.action.shape), noise(), next_obs, ended, task)
