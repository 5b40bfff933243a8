"""Where the rows of a ring lie: in the machine's memory, or on the learner's device.

Which rows a batch has is decided on the host, by the same numbers and random stream wherever they lie: a batch and a
checkpoint's files are the same, and a training may go on with its replay in the other place. Of rows on a device only
those that are new, and in a checkpoint's file, pass through the machine's memory.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.buffers.rows import Fields, Numbers, Rows
from trainer.envs.spaces import I64
from trainer.machine.device import on_device

#: Linux's MAP_NORESERVE, which Python 3.11 has no name for: nothing is promised. Elsewhere nothing ever is.
_UNPROMISED = 0x4000 if sys.platform == "linux" else 0
#: From here on huge pages pay, as NumPy has it.
_LARGE_BYTES = 4 * 2**20
#: Rows that are brought to the host at once: of a row of 400 bytes, 26 MB.
_AT_ONCE = 2**16


class Storage(Protocol):
    """Places 0 to `rows` - 1, each with a row of `fields`."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of it on the host, field by field [places, …]; copies of what lies on a device."""

    def span(self, first: int, count: int) -> Mapping[str, npt.NDArray[Any]]:
        """So many rows from place `first` on, on the host: for reading."""

    def take(self, places: I64) -> Mapping[str, Numbers]:
        """Copies of the rows at `places`, where they are to be learned from."""

    def copy(self, places: I64) -> dict[str, npt.NDArray[Any]]:
        """Copies of the rows at `places`, on the host."""

    def lay(self, places: I64, rows: Rows) -> None:
        """Write `rows` at `places`, which are all different."""


class HostRows(Storage):
    """Arrays, which take no memory where no row has come. Errors: OSError (ENOMEM)."""

    def __init__(self, rows: int, fields: Fields) -> None:
        self._arrays = {name: zeros((rows, *shape), kind) for name, (shape, kind) in fields.items()}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return self._arrays

    def span(self, first: int, count: int) -> Mapping[str, npt.NDArray[Any]]:
        return {name: array[first : first + count] for name, array in self._arrays.items()}

    def take(self, places: I64) -> Mapping[str, Numbers]:
        return self.copy(places)

    def copy(self, places: I64) -> dict[str, npt.NDArray[Any]]:
        return {name: array.take(places, 0) for name, array in self._arrays.items()}

    def lay(self, places: I64, rows: Rows) -> None:
        for name, array in self._arrays.items():
            array[places] = rows[name]


class DeviceRows(Storage):
    """Tensors on `device`. A GPU gives the memory for all of them at once: RuntimeError where it has not so much."""

    def __init__(self, rows: int, fields: Fields, device: torch.device) -> None:
        self._device, self._fields = device, fields
        self._tensors = {name: self._zeros((rows, *shape), kind) for name, (shape, kind) in fields.items()}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {name: tensor.cpu().numpy() for name, tensor in self._tensors.items()}

    def span(self, first: int, count: int) -> Mapping[str, npt.NDArray[Any]]:
        return self.copy(first + np.arange(count))

    def take(self, places: I64) -> dict[str, Tensor]:
        there = on_device(places, self._device)
        return {name: tensor.index_select(0, there) for name, tensor in self._tensors.items()}

    def copy(self, places: I64) -> dict[str, npt.NDArray[Any]]:
        found = {name: np.empty((len(places), *shape), kind) for name, (shape, kind) in self._fields.items()}
        for at in range(0, len(places), _AT_ONCE):
            part = slice(at, at + _AT_ONCE)
            for name, tensor in self.take(places[part]).items():
                found[name][part] = tensor.cpu().numpy()
        return found

    def lay(self, places: I64, rows: Rows) -> None:
        there = on_device(places, self._device)
        for name, tensor in self._tensors.items():
            kind = self._fields[name][1]
            tensor.index_copy_(0, there, on_device(np.ascontiguousarray(rows[name], kind), self._device))

    def _zeros(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> Tensor:
        """On the CPU of pages that take no memory before a row comes."""
        if self._device.type == "cpu":
            return torch.from_numpy(zeros(shape, kind))
        return torch.zeros(shape, dtype=torch.from_numpy(np.empty(0, kind)).dtype, device=self._device)


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """[*shape], writable, of which only the pages that are written to take memory.

    A ring may be far larger than what ever comes, above all one of frames, and Linux, as it is usually set, refuses to
    promise more memory than the whole machine has. Errors: OSError (ENOMEM) where even the addresses are refused.
    """
    kind, count = np.dtype(dtype), prod(shape)
    size = max(1, count * kind.itemsize)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNPROMISED)
    if size >= _LARGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, kind, count).reshape(shape)
