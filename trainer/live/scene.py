"""What a viewer draws: the bodies of a task once, in a scene file, and their poses in batches, as int16
(`anchorleg.live.batches`).

A scene file is gzip of `u32 length of header | header, JSON | zeros up to a multiple of 4 | binary`, little endian. The
header has `version`, `bodies` (names, in the order of POSE batches), `camera` (MuJoCo's free one), `left_out` (how many
shapes nobody can draw) and
- `geoms`: `body` (a place in `bodies`; -1: fixed in the world), `type`, `size` (MuJoCo's half sizes, m), `rgba`, `pos`
  and `quat` (w, x, y, z) as seen from the body, `mesh` (a place in `meshes`, or null);
- `meshes`: `vertices` and `triangles` (where they begin in the binary), `count`, `faces`, `wide` (whether a triangle's
  numbers are u32, not u16), `place` and `unit`: a vertex is `place + unit * (three int16)`.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anchorleg.live.batches import FACTS, MOST_HEADER_BYTES, MOST_SCENE_BYTES, POSE, POSE_NUMBERS, packed
from anchorleg.live.ring import MAX_PAYLOAD_BYTES
from trainer.envs.shown import MOST_BODIES, SHAPES, Glimpse, Parts
from trainer.envs.spaces import F32

VERSION = 1
#: A reader refuses a larger scene.
MOST_BYTES = 64 * 2**20
MOST_GEOMS = 4_096
_LENGTH = struct.Struct("<I")
#: Numbers of a header keep what single precision has.
_DIGITS = 7
#: Triangles of a mesh with so many vertices name them with 16 bits.
_NARROW = 2**16
#: Bytes that a number of the binary part begins at a multiple of.
_ALIGNMENT = 4
_LEVEL = 6
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
        raise ValueError("a body's position or rotation is not a number")
    place = values[..., :3].mean(axis=(0, 1))
    away = values[..., :3] - place
    unit = max(FINEST_M, float(np.abs(away).max()) / _MOST)
    if unit >= COARSEST_M:
        raise ValueError("the bodies are too far apart to be drawn")
    numbers = np.empty(poses.shape, "<i2")
    numbers[..., :3] = np.clip(np.rint(away / unit), -_MOST, _MOST)
    numbers[..., 3:] = np.rint(values[..., 3:] / lengths * _MOST)
    x, y, z = place.tolist()
    return Quantised((x, y, z), unit, numbers.tobytes())


def packed_scene(parts: Parts) -> bytes:
    """The file's bytes; of equal parts equal ones. Errors: ValueError where it is too large, or cannot be drawn."""
    kinds = parts.arrays["type"]
    if len(kinds) > MOST_GEOMS or len(parts.bodies) > MOST_BODIES:
        raise ValueError(f"{len(kinds)} geoms of {len(parts.bodies)} bodies are too many to be shown")
    binary = bytearray()
    meshes = [_mesh(parts, number, binary) for number in range(int(parts.arrays["mesh"].max(initial=-1)) + 1)]
    geoms = [_geom(parts, number) for number in range(len(kinds))]
    camera = {name: _numbers(value) for name, value in parts.camera.items()}
    header = {
        "version": VERSION,
        "bodies": list(parts.bodies),
        "geoms": geoms,
        "meshes": meshes,
        "camera": camera,
        "left_out": parts.left_out,
    }
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    gap = bytes(-(_LENGTH.size + len(text)) % _ALIGNMENT)
    whole = _LENGTH.pack(len(text)) + text + gap + binary
    squeezed = gzip.compress(whole, _LEVEL, mtime=0)
    if len(whole) > MOST_BYTES or len(squeezed) > MOST_SCENE_BYTES:
        raise ValueError(f"a scene of {len(whole):,} bytes is too large to be shown")
    return squeezed


def _geom(parts: Parts, number: int) -> dict[str, Any]:
    found = {name: array[number] for name, array in parts.arrays.items() if "." not in name}
    mesh = int(found["mesh"])
    return {
        "body": int(found["body"]),
        "type": SHAPES[int(found["type"])],
        **{name: _numbers(found[name]) for name in ("size", "rgba", "pos", "quat")},
        "mesh": mesh if mesh >= 0 else None,
    }


def _mesh(parts: Parts, number: int, binary: bytearray) -> dict[str, Any]:
    """Its header; its numbers go to the end of `binary`."""
    vertices = parts.arrays[f"vertices.{number}"].astype(np.float64)
    faces = parts.arrays[f"faces.{number}"]
    if not len(vertices) or not np.isfinite(vertices).all():
        raise ValueError(f"mesh {number} has no vertices, or some without a position")
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    place = (low + high) / 2
    unit = max(float((high - low).max()) / (2 * _MOST), 1e-9)
    whole = np.rint((vertices - place) / unit).astype("<i2")
    is_wide = len(vertices) > _NARROW
    return {
        "vertices": _put(whole, binary),
        "count": len(vertices),
        "triangles": _put(faces.astype("<u4" if is_wide else "<u2"), binary),
        "faces": len(faces),
        "wide": is_wide,
        "place": place.tolist(),
        "unit": unit,
    }


def _put(array: npt.NDArray[Any], binary: bytearray) -> int:
    """Where `array` begins in `binary`, now that it is in it."""
    binary += bytes(-len(binary) % _ALIGNMENT)
    begin = len(binary)
    binary += array.tobytes()
    return begin


def _numbers(value: Any) -> Any:
    """As JSON has them, with the digits that mean something. Errors: ValueError where one is none."""
    if isinstance(value, float | int):
        if not math.isfinite(value):
            raise ValueError("a value of the scene is not a number")
        return float(f"{value:.{_DIGITS}g}")
    return [_numbers(each) for each in np.asarray(value).tolist()]
