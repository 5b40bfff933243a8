"""A replay ring on the learner's device: rows are written once, and what is drawn of them never leaves it.

Where a row lies and which rows a batch has is decided on the host, by the numbers and the random stream of any ring: so
a batch has the same rows wherever they lie, a checkpoint the same row files, and a training may go on with its replay
in the other place. Of the rows only those that are new, and in a checkpoint's file, pass through the machine's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.buffers.pages import zeros
from trainer.buffers.replay import Drawn, Replay
from trainer.buffers.rows import Batch, Fields, joined
from trainer.envs.spaces import I64
from trainer.machine.device import on_device

#: Rows that are brought to the host at once: of a row of 400 bytes, 26 MB.
_AT_ONCE = 2**16


class DeviceReplay(Replay):
    """As `Replay`, its rows tensors on `device`. A GPU gives the memory for all of them at once.

    Errors of the constructor: RuntimeError where the GPU has not so much.
    """

    def __init__(self, capacity: int, num_tasks: int, fields: Fields, device: torch.device) -> None:
        self.device = device
        super().__init__(capacity, num_tasks, fields)

    def gathered(self, parts: Sequence[Drawn]) -> Batch:
        """A batch of `parts`, which lies on the device, but for its tasks."""
        own, *others = parts
        batch = Batch.of(self._taken(own.places), own.task)
        return joined(batch, others[0].ring.gathered(others)) if others else batch

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Copies of all of it on the host: for comparing, and for small rings."""
        return {name: tensor.cpu().numpy() for name, tensor in self._tensors.items()}

    def rows_of(self, task: int) -> dict[str, npt.NDArray[Any]]:
        """The ring itself, field by field, copied to the host."""
        return self._copied(task * self.capacity + np.arange(int(self.sizes[task])))

    def _made(self) -> None:
        rows = self.capacity * self.num_tasks
        self._tensors = {name: _zeros((rows, *shape), kind, self.device) for name, (shape, kind) in self.fields.items()}

    def _taken(self, places: I64) -> dict[str, Tensor]:
        """The rows at `places`, on the device."""
        there = on_device(places, self.device)
        return {name: tensor.index_select(0, there) for name, tensor in self._tensors.items()}

    def _column(self, places: I64, name: str) -> npt.NDArray[Any]:
        return self._tensors[name].index_select(0, on_device(places, self.device)).cpu().numpy()

    def _copied(self, places: I64) -> dict[str, npt.NDArray[Any]]:
        found = {name: np.empty((len(places), *shape), kind) for name, (shape, kind) in self.fields.items()}
        for at in range(0, len(places), _AT_ONCE):
            part = slice(at, at + _AT_ONCE)
            for name, tensor in self._taken(places[part]).items():
                found[name][part] = tensor.cpu().numpy()
        return found

    def _lay(self, places: I64, rows: Mapping[str, npt.NDArray[Any]]) -> None:
        there = on_device(places, self.device)
        for name, tensor in self._tensors.items():
            kind = self.fields[name][1]
            tensor.index_copy_(0, there, on_device(np.ascontiguousarray(rows[name], kind), self.device))


def _zeros(shape: tuple[int, ...], kind: np.dtype[Any], device: torch.device) -> Tensor:
    """On the CPU of pages that take no memory before a row comes."""
    if device.type == "cpu":
        return torch.from_numpy(zeros(shape, kind))
    return torch.zeros(shape, dtype=torch.from_numpy(np.empty(0, kind)).dtype, device=device)
