"""The scene file: what the bodies of a POSE batch look like, for the viewer that draws them.

It is gzip of `u32 length of header | header, JSON | zeros up to a multiple of 4 | binary`, little endian. The header
has `version`, `bodies` (names, in the order of POSE batches), `camera` (MuJoCo's free one), `left_out` (how many shapes
nobody can draw) and
- `geoms`: `body` (a place in `bodies`; -1: fixed in the world), `type`, `size` (MuJoCo's half sizes, m), `rgba`, `pos`
  and `quat` (w, x, y, z) as seen from the body, `mesh` (a place in `meshes`, or null);
- `meshes`: `vertices` and `triangles` (where they begin in the binary), `count`, `faces`, `wide` (whether a triangle's
  numbers are u32, not u16), `place` and `unit`: a vertex is `place + unit * (three int16)`.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.live.batches import MOST_SCENE_BYTES
from trainer.envs.shown import MOST_BODIES, SHAPES, Parts

VERSION = 1
#: A reader refuses a larger scene.
MOST_BYTES = 64 * 2**20
MOST_GEOMS = 4_096
_LENGTH = struct.Struct("<I")
#: Numbers of a header keep what single precision has.
_DIGITS = 7
_MOST = 32_767
#: Triangles of a mesh with so many vertices name them with 16 bits.
_NARROW = 2**16
#: Bytes that a number of the binary part begins at a multiple of.
_ALIGNMENT = 4
_LEVEL = 6


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
    packed = gzip.compress(whole, _LEVEL, mtime=0)
    if len(whole) > MOST_BYTES or len(packed) > MOST_SCENE_BYTES:
        raise ValueError(f"a scene of {len(whole):,} bytes is too large to be shown")
    return packed


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
        raise ValueError(f"mesh {number} has no vertices, or some that are nowhere")
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
            raise ValueError("a number of the scene is none")
        return float(f"{value:.{_DIGITS}g}")
    return [_numbers(each) for each in np.asarray(value).tolist()]
