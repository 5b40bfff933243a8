"""Whether recorded updates of MTSAC leave the very bits that others do here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from trainer.algorithms.common.cuda_graph import Record, Updates, record_cuda_graph
from trainer.algorithms.common.graph_check import leaves_same_bits
from trainer.algorithms.mtsac.inputs import prepare
from trainer.algorithms.mtsac.learner import create, tensors_of
from trainer.algorithms.mtsac.update import learn
from trainer.buffers.rows import Batch
from trainer.config.training import Training
from trainer.envs.spaces import Spaces


class _Alone:
    """A learner without a replay, whose updates are made that `way`."""

    def __init__(self, training: Training, spaces: Spaces, device: torch.device, record: Record, way: str) -> None:
        self._learner = create(training, spaces, device)
        self._updates = Updates(partial(learn, self._learner), device, way, record)

    def learn(self, batch: Batch) -> Tensor:
        """One update."""
        return self._updates.update(prepare(batch, self._learner.noise, self._learner.device))

    def tensors(self) -> Mapping[str, Tensor]:
        """All that it learned."""
        return tensors_of(self._learner)


def is_same(training: Training, spaces: Spaces, device: torch.device, record: Record = record_cuda_graph) -> bool:
    """A few updates both ways. Errors: RuntimeError where CUDA cannot record."""
    return leaves_same_bits(partial(_Alone, training, spaces, device, record), training, spaces)
