"""From bodies' places to the body of a POSE batch (`anchorleg.live.batches`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anchorleg.live.batches import POSE_NUMBERS
from trainer.envs.spaces import F32

#: Nobody sees a tenth of a millimetre; a finer unit would only make equal places differ.
FINEST_M = 1e-4
#: A metre for each of this many; beyond it a picture shows nothing.
COARSEST_M = 1e6
_MOST = 32_767


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
