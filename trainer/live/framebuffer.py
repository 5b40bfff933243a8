"""Frames of one episode, packed into a batch for its lane; bodies' poses as int16 (`anchorleg.live.batches`)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from anchorleg.live.batches import FACTS, MOST_HEADER_BYTES, POSE, POSE_NUMBERS, packed
from anchorleg.live.ring import MAX_PAYLOAD_BYTES
from trainer.envs.shown import Glimpse
from trainer.envs.spaces import F32

#: A batch leaves so often: a picture is that much later for it, and a network folder has five openings a second.
BATCH_S = 0.2
#: Facts that name the place to reach (m): the viewer draws a mark there.
GOAL = ("goal_x", "goal_y", "goal_z")
#: Where nothing can be drawn, what is known is sent so often.
FACTS_S = 1.0
#: Nobody sees a tenth of a millimetre; a finer unit would only make equal places differ.
FINEST_M = 1e-4
#: A metre for each of this many; beyond it a picture shows nothing.
COARSEST_M = 1e6
_MOST = 32_767


@dataclass
class FrameBuffer:
    """Glimpses of episode number `episode` of `task`, oldest first, `fps` of them a second.

    `at`: unix s of the newest. `told`: whether anybody says what success is; else only a success is told.
    """

    task: str
    episode: int
    fps: int
    told: bool
    at: float = 0.0
    glimpses: list[Glimpse] = field(default_factory=list)
    facts: dict[str, str | float | bool] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether one more might not fit into a cell."""
        each = 2 * POSE_NUMBERS * max(len(one.poses) for one in self.glimpses)
        return (len(self.glimpses) + 1) * each > MAX_PAYLOAD_BYTES - MOST_HEADER_BYTES - 2

    def payload(self, scene: str | None, origin: str, attempt: int) -> tuple[int, bytes]:
        """(kind, payload) of its batch: poses of `scene`, or facts alone. Errors: ValueError if it cannot be drawn."""
        header = self._header(origin, attempt)
        if scene is None or not self.glimpses[0].poses.size:
            return FACTS, packed(header)
        poses: F32 = np.stack([one.poses for one in self.glimpses])
        found = quantised(poses)
        measures = {"place": found.place, "unit": found.unit, "dt": self._dt()}
        counts = {"scene": scene, "frames": len(poses), "bodies": poses.shape[1]}
        return POSE, packed({**header, **counts, **measures}, found.body)

    def _header(self, origin: str, attempt: int) -> dict[str, Any]:
        first, last = self.glimpses[0], self.glimpses[-1]
        return {
            "at": self.at,
            "task": self.task,
            "episode": self.episode,
            "step": first.step,
            "attempt": attempt,
            "origin": origin,
            "return": last.total,
            "success": last.success if self.told or last.success else None,
            "facts": {**self.facts, **dict(zip(GOAL, last.goal or (), strict=False))},
        }

    def _dt(self) -> float:
        """Simulated seconds from one picture to the next: the usual ones, should one be missing."""
        steps = [after.at_s - before.at_s for before, after in itertools.pairwise(self.glimpses)]
        found = float(np.median(steps)) if steps else 0.0
        return found if 0 < found < 60 else 1 / self.fps


class Quantised(NamedTuple):
    """int16 numbers, little endian: a position is `place + unit * (x, y, z)`, a rotation (w, x, y, z) / 32767."""

    place: tuple[float, float, float]
    unit: float
    body: bytes


def quantised(poses: F32) -> Quantised:
    """Of `poses` [F, B, 7], F and B at least 1. Errors: ValueError where they cannot be drawn (NaN, no rotation)."""
    if poses.ndim != 3 or poses.shape[2] != POSE_NUMBERS or not poses.size:
        raise ValueError(f"poses have the shape {poses.shape}, not [F, B, {POSE_NUMBERS}]")
    values = poses.astype(np.float64)
    lengths = np.linalg.norm(values[..., 3:], axis=-1, keepdims=True)
    if not np.isfinite(values).all() or not (lengths > 0).all():
        raise ValueError("a body is nowhere: its place or its rotation is not a number")
    place = values[..., :3].mean(axis=(0, 1))
    away = values[..., :3] - place
    unit = max(FINEST_M, float(np.abs(away).max()) / _MOST)
    if unit >= COARSEST_M:
        raise ValueError("the bodies are too far from each other to be drawn")
    numbers = np.empty(poses.shape, "<i2")
    numbers[..., :3] = np.clip(np.rint(away / unit), -_MOST, _MOST)
    numbers[..., 3:] = np.rint(values[..., 3:] / lengths * _MOST)
    x, y, z = place.tolist()
    return Quantised((x, y, z), unit, numbers.tobytes())
