"""What one update of an off-policy algorithm works on, cut into shards, and as bytes for other ranks.

Shapes: B rows of a batch, V shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import torch
from torch import Tensor

from trainer.buffers.rows import Batch

_BATCH, _DRAWN = "batch.", "drawn."


@dataclass(frozen=True)
class Sample:
    """A batch, and all that is `drawn` for its update, on the CPU: [B, …] each. So whoever has it draws nothing. Shards
    and what is packed lie on the host, wherever the batch does.
    """

    batch: Batch
    drawn: Mapping[str, Tensor]

    def shard(self, number: int, shards: int) -> Sample:
        """Every V-th row, beginning with row `number`: as many of each task in each shard, but for one; copied."""
        return _sample_of({name: np.array(array[number::shards]) for name, array in self._arrays.items()})

    def packed(self) -> bytes:
        """For `unpacked`."""
        return safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in self._arrays.items()})

    @classmethod
    def unpacked(cls, data: bytes) -> Sample:
        """What was `packed`."""
        return _sample_of({name: array.copy() for name, array in safetensors.numpy.load(data).items()})

    @cached_property
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            **{f"{_BATCH}{name}": array for name, array in self.batch.arrays().items()},
            **{f"{_DRAWN}{name}": tensor.numpy() for name, tensor in self.drawn.items()},
        }


def _sample_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Sample:
    drawn = {n.removeprefix(_DRAWN): torch.from_numpy(array) for n, array in arrays.items() if n.startswith(_DRAWN)}
    batch = {name.removeprefix(_BATCH): array for name, array in arrays.items() if name.startswith(_BATCH)}
    return Sample(Batch.of_arrays(batch), drawn)
