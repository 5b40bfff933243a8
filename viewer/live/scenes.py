"""Scene files: read, checked, kept. Strangers write them, so nothing of one is believed before it was looked at.

A file is gzip of `u32 length, little endian | header, JSON | zeros up to a multiple of 4 | binary`, named by its own
sha256. The header has `version`, `bodies` (names, in the order of the poses), `geoms`, `meshes` and `camera`.
"""

from __future__ import annotations

import array
import hashlib
import json
import math
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.files import read_regular
from anchorleg.live.batches import MOST_SCENE_BYTES
from viewer.errors import BadSceneError

SUFFIX = ".scene"
VERSION = 1
MOST_UNPACKED = 64 * 2**20
MOST_GEOMS, MOST_BODIES, MOST_MESHES = 4096, 512, 4096
MOST_HEADER_BYTES = 4 * 2**20
KINDS = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
#: Nothing that is drawn lies farther away, in m.
MOST_REACH_M = 1e5
#: Of all scenes that are kept.
MOST_KEPT_BYTES = 64 * 2**20
#: A scene that is not there, or damaged, is looked for again so often.
AGAIN_S = 1.0
_LENGTH = struct.Struct("<I")


class Scene(NamedTuple):
    """`data`: the file; `bodies`: how many move."""

    data: bytes
    bodies: int


def checked_scene(data: bytes, sha256: str) -> Scene:
    """The scene of a file with this sum. Errors: BadSceneError."""
    if len(data) > MOST_SCENE_BYTES:
        raise BadSceneError("scene.too-large")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadSceneError("scene.wrong-sum")
    try:
        return Scene(data, _bodies(_unpacked(data)))
    except BadSceneError:
        raise
    except (zlib.error, struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise BadSceneError("scene.unreadable") from None


def _unpacked(data: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    raw = stream.decompress(data, MOST_UNPACKED + 1)
    if len(raw) > MOST_UNPACKED:
        raise BadSceneError("scene.unpacks-to-too-much")
    if not stream.eof or stream.unused_data:
        raise BadSceneError("scene.not-gzip")
    return raw


def _bodies(raw: bytes) -> int:
    (length,) = _LENGTH.unpack_from(raw)
    if length > MOST_HEADER_BYTES:
        raise BadSceneError("scene.header-too-long")
    header = json.loads(raw[4 : 4 + length])
    binary = memoryview(raw)[-(-(4 + length) // 4) * 4 :]
    if header["version"] != VERSION:
        raise BadSceneError("scene.other-version")
    names, geoms, meshes = header["bodies"], header["geoms"], header["meshes"]
    if not all(isinstance(one, list) for one in (names, geoms, meshes)):
        raise BadSceneError("scene.unreadable")
    if not 1 <= len(names) <= MOST_BODIES or len(geoms) > MOST_GEOMS or len(meshes) > MOST_MESHES:
        raise BadSceneError("scene.parts")
    if not all(isinstance(name, str) for name in names):
        raise BadSceneError("scene.body-without-name")
    left = len(binary)
    for mesh in meshes:
        left -= _check_mesh(mesh, binary, left)
    for geom in geoms:
        _check_geom(geom, len(names), len(meshes))
    camera = header["camera"]
    _numbers(camera["lookat"], 3)
    _numbers([camera[name] for name in ("distance", "azimuth", "elevation")], 3)
    if not camera["distance"] > 0:
        raise BadSceneError("scene.camera-nowhere")
    return len(names)


def _check_geom(geom: Mapping[str, Any], bodies: int, meshes: int) -> None:
    body, kind, mesh = geom["body"], geom["type"], geom["mesh"]
    if type(body) is not int or not -1 <= body < bodies or kind not in KINDS:
        raise BadSceneError("scene.part-nowhere")
    if kind == "mesh" and (type(mesh) is not int or not 0 <= mesh < meshes):
        raise BadSceneError("scene.mesh-missing")
    if min(_numbers(geom["size"], 3)) < 0 or not all(0 <= one <= 1 for one in _numbers(geom["rgba"], 4)):
        raise BadSceneError("scene.size-or-colour")
    _numbers(geom["pos"], 3)
    if not 0.5 < math.hypot(*_numbers(geom["quat"], 4)) < 2:
        raise BadSceneError("scene.no-rotation")


def _check_mesh(mesh: Mapping[str, Any], binary: memoryview, left: int) -> int:
    """The bytes that are its own, of `left`: meshes that shared theirs would take a browser's memory many times."""
    start, count, first, faces = (mesh[name] for name in ("vertices", "count", "triangles", "faces"))
    if any(type(one) is not int or one < 0 for one in (start, count, first, faces)) or type(mesh["wide"]) is not bool:
        raise BadSceneError("scene.unreadable")
    width = 4 if mesh["wide"] else 2
    if start % 2 or first % width or start + 6 * count > len(binary) or first + 3 * width * faces > len(binary):
        raise BadSceneError("scene.mesh-beyond-end")
    size: int = 6 * count + 3 * width * faces
    if size > left:
        raise BadSceneError("scene.meshes-too-large")
    places = array.array("I" if mesh["wide"] else "H", bytes(binary[first : first + 3 * width * faces]))
    if sys.byteorder == "big":
        places.byteswap()
    if faces and max(places) >= count:
        raise BadSceneError("scene.mesh-corner-missing")
    if not 0 < mesh["unit"] < MOST_REACH_M or any(abs(one) > MOST_REACH_M for one in _numbers(mesh["place"], 3)):
        raise BadSceneError("scene.mesh-too-far")
    return size


def _numbers(values: Sequence[Any], count: int) -> list[float]:
    """So many finite numbers."""
    good = isinstance(values, list) and len(values) == count
    if not good or any(type(one) not in (int, float) or not abs(one) <= MOST_REACH_M for one in values):
        raise BadSceneError("scene.no-number")
    return [float(one) for one in values]


class SceneShelf:
    """Scenes that were asked for, by their sums. One thread uses it."""

    def __init__(self) -> None:
        self._kept: dict[str, Scene] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    def get(self, folder: Path, sha256: str, now: float) -> Scene | str | None:
        """The scene `sha256` of `folder`; None: it is not there (yet); a str: why it cannot be drawn. `now`: s."""
        if (scene := self._kept.pop(sha256, None)) is not None:
            self._kept[sha256] = scene
            return scene
        at, why = self._failed.get(sha256, (-math.inf, ""))
        if now - at < AGAIN_S:
            return why or None
        data = _read(folder / (sha256 + SUFFIX))
        try:
            if data is not None:
                scene = self._kept[sha256] = checked_scene(data, sha256)
                self._failed.pop(sha256, None)
                self._make_room()
                return scene
            why = ""
        except BadSceneError as error:
            why = str(error)
        if len(self._failed) > MOST_BODIES:
            self._failed.clear()
        self._failed[sha256] = (now, why)
        return why or None

    def _make_room(self) -> None:
        while sum(len(one.data) for one in self._kept.values()) > MOST_KEPT_BYTES:
            del self._kept[next(iter(self._kept))]


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, MOST_SCENE_BYTES + 1)
    except OSError:
        return None
