"""The arrays that the learner and its environment workers share: one row an environment."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.shown import MOST_BODIES, POSE, Glimpse, Place
from trainer.envs.spaces import I32, Spaces
from trainer.envs.step import Step
from trainer.envs.suite import EpisodeStats

#: Rows of a field start on a cache line.
_ALIGNMENT = 64
#: Fields of a step beside its observations, all [N]. In this order, as a stepper gets their addresses.
_NUMBERS: dict[str, type[np.generic]] = {
    "reward": np.float32,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "success": np.bool_,
    "task": np.int32,
    "next_task": np.int32,
    "finished": np.bool_,
    "episode_return": np.float64,
    "episode_length": np.int32,
    "episode_success": np.bool_,
}
#: The last field of a step, [N, M].
_MEASURES = "episode_measures"
#: For viewers: whether an environment is to be seen after the next step [N]; where it stands then [N, 9], as
#: `put_glimpse` writes it; and its bodies' poses [N, 512, 7]. Pages that nobody touches take no memory.
_WATCHED, _STANDING, _POSES = "watched", "standing", "poses"
_NO_GOAL = (math.nan,) * 3


class SharedBuffers:
    """Named arrays over one anonymous block of memory, addressed by its file descriptor: `actions`, `obs.<key>` and
    `next_obs.<key>` of each key (of stacked ones the newest frame), the other fields of `Step`, and what is for
    watchers, all [N, …].

    The block has no name, so nothing is left behind when every process that holds it is killed.
    """

    def __init__(self, spaces: Spaces, num_envs: int, fd: int | None = None, measures: int = 0) -> None:
        """Map the block behind `fd`, or make a new one; `measures` is the M of an episode. Errors: OSError where there
        is no memory for it.
        """
        fields: dict[str, tuple[Any, tuple[int, ...]]] = {"actions": (spaces.action.dtype, spaces.action.shape)}
        for when in ("obs", "next_obs"):
            fields |= {f"{when}.{key}": (spec.dtype, spec.frame) for key, spec in spaces.obs.items()}
        fields |= {name: (dtype, ()) for name, dtype in _NUMBERS.items()}
        fields[_MEASURES] = (np.float64, (measures,))
        fields |= {_WATCHED: (np.bool_, ()), _STANDING: (np.float64, (9,)), _POSES: (np.float32, (MOST_BODIES, POSE))}
        offsets: list[int] = []
        size = 0
        for dtype, shape in fields.values():
            offsets.append(size)
            row_bytes = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
            size += -(-row_bytes * num_envs // _ALIGNMENT) * _ALIGNMENT
        self.fd = _anonymous(size) if fd is None else fd
        self._map = mmap.mmap(self.fd, size)
        self.fields: dict[str, npt.NDArray[Any]] = {
            name: np.ndarray((num_envs, *shape), dtype, self._map, offset)
            for (name, (dtype, shape)), offset in zip(fields.items(), offsets, strict=True)
        }
        self.obs = {key: self.fields[f"obs.{key}"] for key in spaces.obs}
        self.next_obs = {key: self.fields[f"next_obs.{key}"] for key in spaces.obs}
        self.watched = self.fields[_WATCHED]

    def copied(self) -> Step:
        """The last step, in memory of its own."""
        obs, next_obs = _copies(self.obs), _copies(self.next_obs)
        return Step(obs=obs, next_obs=next_obs, **_copies({name: self.fields[name] for name in (*_NUMBERS, _MEASURES)}))

    def observed(self) -> tuple[dict[str, npt.NDArray[Any]], I32]:
        """(obs, next_task), copied."""
        return _copies(self.obs), self.fields["next_task"].copy()

    def poses(self, index: int, bodies: int) -> npt.NDArray[np.float32]:
        """[bodies, 7], to write those of environment `index` into; `put_glimpse` must follow."""
        return self.fields[_POSES][index, :bodies]

    def put_glimpse(
        self, index: int, episode: int, stats: EpisodeStats, at_s: float, bodies: int, goal: Place | None
    ) -> None:
        """Where environment `index` stands in its episode number `episode`; `bodies` of it have their pose written."""
        numbers = episode, stats.length, stats.total, stats.solved, at_s, bodies
        self.fields[_STANDING][index] = *numbers, *(goal or _NO_GOAL)

    def glimpse(self, index: int) -> Glimpse:
        """What was put last of environment `index`, in memory of its own."""
        episode, step, total, solved, at_s, bodies, x, y, z = self.fields[_STANDING][index].tolist()
        poses = self.fields[_POSES][index, : int(bodies)].copy()
        goal = None if math.isnan(x) else (x, y, z)
        return Glimpse(int(episode), int(step), total, bool(solved), at_s, poses, goal)

    def close(self) -> None:
        """Let go of the block; it vanishes with its last holder."""
        os.close(self.fd)


def _copies(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {name: array.copy() for name, array in arrays.items()}


def _anonymous(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("anchorleg-buffers")
    else:
        with tempfile.TemporaryFile() as file:  # already unlinked
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
