"""Demonstrations in memory, as a policy sees them: stacks and clips by arithmetic over episode borders.

Shapes: N frames of all episodes behind each other, E episodes, B rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.words import counted, sized
from trainer.demos.store import ACTION, DemoEpisode, Demos
from trainer.envs.frames import stacked
from trainer.envs.spaces import I64, IMAGE, ArraySpec, Spaces
from trainer.errors import ConfigError, OutOfMemoryError

#: What is neither the demonstrations' own nor a batch's: torch, nets.
_PROGRAM_BYTES = 2**30
#: The smallest --batch-size.
LEAST_BATCH = 2


@dataclass(frozen=True)
class BatchNeed:
    """A batch of `size` (`--batch-size`), of each of which learning keeps so many bytes until it has the gradient."""

    size: int
    bytes_each: int


@dataclass(frozen=True)
class Footage:
    """All frames and what was told beside them. `arrays`: name → [N, …]; of arrays that have a row less an episode than
    it has frames, its last one is 0. `begins` [E]: the place of each episode's first frame. `told`: what they are of,
    where there are actions.
    """

    told: Spaces | None
    episodes: tuple[DemoEpisode, ...]
    begins: I64
    arrays: dict[str, npt.NDArray[Any]]

    @classmethod
    def of(
        cls,
        demos: Demos,
        free_bytes: int | None,
        *,
        pictures: Collection[str] = (IMAGE,),
        batch: BatchNeed | None = None,
    ) -> Footage:
        """`pictures`: the keys of those that are looked at, which the demonstrations have; others are not kept.
        `batch`: what learning takes of the same memory, if that is known.

        Errors: OutOfMemoryError, with what would fit; DamagedDemosError.
        """
        manifest = demos.manifest
        if pictures:
            size = manifest.frame_bytes(pictures)
            _check_memory(manifest.num_frames, size, batch or BatchNeed(0, 0), free_bytes)
        episodes = manifest.episodes
        begins = np.concatenate([[0], np.cumsum([episode.frames for episode in episodes])]).astype(np.int64)
        arrays: dict[str, npt.NDArray[Any]] = {}
        for number, (_, found) in enumerate(demos.read()):
            for name, array in found.items():
                if array.dtype == np.uint8 and array.ndim > 3 and name not in pictures:
                    continue
                if name not in arrays:
                    arrays[name] = np.zeros((manifest.num_frames, *array.shape[1:]), array.dtype)
                first = begins[number]
                arrays[name][first : first + len(array)] = array
        return cls(manifest.opened, episodes, begins[:-1], arrays)

    def seen(self, name: str, spec: ArraySpec, at: I64) -> npt.NDArray[Any]:
        """[B, *spec.shape]: what a policy sees of the array `name` at frames `at` [B]; before an episode its first
        frame is repeated.
        """
        first = self.begins[np.searchsorted(self.begins, at, side="right") - 1]
        back = np.arange(spec.stack)[::-1] * spec.stride
        places = np.maximum(at[:, None] - back, first[:, None])
        return stacked(spec, self.arrays[name][places])

    def film(self, episode: int) -> npt.NDArray[Any]:
        """[F, 3 · cameras, H, W]: all frames of one episode, a view."""
        first = self.begins[episode]
        return self.arrays[IMAGE][first : first + self.episodes[episode].frames]

    def places(self, chosen: Sequence[int], *, of_actions: bool) -> I64:
        """Where the frames of the episodes `chosen` lie; `of_actions`: those in which was acted."""
        lengths = [self.episodes[e].actions if of_actions else self.episodes[e].frames for e in chosen]
        parts = [self.begins[e] + np.arange(n) for e, n in zip(chosen, lengths, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @property
    def has_actions(self) -> bool:
        """Whether anybody told what was done."""
        return ACTION in self.arrays


def held_out(count: int, share: float, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """(those that are learned from, those that are not): one of `count` episodes at least in each.

    Errors: ConfigError where that cannot be.
    """
    if count < 2:
        are = "is" if count == 1 else "are"
        raise ConfigError(f"there {are} {counted(count, 'usable episode')}, and two are needed: one is held out")
    order = rng.permutation(count).tolist()
    out = min(count - 1, max(1, round(share * count)))
    return sorted(order[out:]), sorted(order[:out])


def _check_memory(frames: int, size: int, batch: BatchNeed, free_bytes: int | None) -> None:
    kept = batch.size * batch.bytes_each
    if free_bytes is None or size + kept + _PROGRAM_BYTES <= free_bytes:
        return
    room = max(0, free_bytes - _PROGRAM_BYTES)
    takes = f"the demonstrations' {frames:,} frames take {sized(size)}, "
    if kept:
        takes += f"what is learned from a batch of {batch.size:,} takes {sized(kept)}, "
    takes += f"and {sized(room)} of memory are free for them: "
    if kept > size:
        fits = max(0, room - size) // batch.bytes_each
        if fits >= LEAST_BATCH:
            raise OutOfMemoryError(f"{takes}lower --batch-size from {batch.size:,} to {fits:,} at most")
        raise OutOfMemoryError(
            f"{takes}no --batch-size fits; choose a smaller network.encoder.arch, or import them with a smaller --size"
        )
    smaller = math.floor(100 * math.sqrt(room / (size + kept)))
    raise OutOfMemoryError(
        f"{takes}import them with a --size of at most {smaller} % of this one, with a lower --fps, or fewer of them"
    )
