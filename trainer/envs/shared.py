"""The arrays that the learner and its environment workers share: one row an environment."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.step import ACT_DIM, I32, OBS_DIM, Step

#: Rows of a field start on a cache line.
_ALIGNMENT = 64
_FIELDS: tuple[tuple[str, type[Any], tuple[int, ...]], ...] = (
    ("actions", np.float32, (ACT_DIM,)),
    ("obs", np.float32, (OBS_DIM,)),
    ("next_obs", np.float32, (OBS_DIM,)),
    ("reward", np.float32, ()),
    ("terminated", np.bool_, ()),
    ("truncated", np.bool_, ()),
    ("success", np.bool_, ()),
    ("task", np.int32, ()),
    ("next_task", np.int32, ()),
    ("finished", np.bool_, ()),
    ("episode_return", np.float64, ()),
    ("episode_length", np.int32, ()),
    ("episode_success", np.bool_, ()),
)


class Board:
    """Named arrays over one anonymous block of memory, addressed by its file descriptor.

    The block has no name, so nothing is left behind when every process that holds it is killed.
    """

    def __init__(self, num_envs: int, fd: int | None = None) -> None:
        """Map the block behind `fd`, or make a new one. Errors: OSError where there is no memory for it."""
        offsets: list[int] = []
        size = 0
        for _, dtype, shape in _FIELDS:
            offsets.append(size)
            row_bytes = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
            size += -(-row_bytes * num_envs // _ALIGNMENT) * _ALIGNMENT
        self.fd = _anonymous(size) if fd is None else fd
        self._map = mmap.mmap(self.fd, size)
        self.fields: dict[str, npt.NDArray[Any]] = {
            name: np.ndarray((num_envs, *shape), dtype, self._map, offset)
            for (name, dtype, shape), offset in zip(_FIELDS, offsets, strict=True)
        }

    def copied(self) -> Step:
        """The last step, in memory of its own."""
        return Step(**{name: array.copy() for name, array in self.fields.items() if name != "actions"})

    def observed(self) -> tuple[npt.NDArray[np.float32], I32]:
        """(obs, next_task), copied."""
        return self.fields["obs"].copy(), self.fields["next_task"].copy()

    def close(self) -> None:
        """Let go of the block; it vanishes with its last holder."""
        os.close(self.fd)


def _anonymous(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("anchorleg-board")
    else:
        with tempfile.TemporaryFile() as file:  # already unlinked
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
