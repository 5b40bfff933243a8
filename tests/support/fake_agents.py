"""Agents at play without a training: a small scene, batches of it, and the ring that a job would write."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorleg.live.batches import FACTS, JPEG, POSE, packed
from anchorleg.live.ring import RingWriter

UNIT = 1e-3
STRAIGHT = (1.0, 0.0, 0.0, 0.0)
RED, BLUE, GREEN, GREY, YELLOW, PINK = (
    [0.85, 0.1, 0.1, 1], [0.1, 0.25, 0.9, 1], [0.1, 0.65, 0.25, 1], [0.6, 0.6, 0.6, 1], [0.9, 0.75, 0.1, 1],
    [0.8, 0.3, 0.6, 0.5],
)  # fmt: skip
CAMERA = {"lookat": [0, 0, 0.3], "distance": 3.0, "azimuth": 90, "elevation": -20}


def a_geom(
    kind: str, size: Sequence[float], rgba: Sequence[float], pos: Sequence[float], body: int = 0
) -> dict[str, Any]:
    """One geom of the body, not turned."""
    return {
        "body": body, "type": kind, "size": list(size), "rgba": list(rgba), "pos": list(pos), "quat": [1, 0, 0, 0],
        "mesh": 0 if kind == "mesh" else None,
    }  # fmt: skip


#: A red box that moves, with a blue capsule on it, over a floor.
GEOMS = (
    a_geom("plane", (0, 0, 0.01), GREY, (0, 0, 0), -1),
    a_geom("box", (0.25, 0.25, 0.25), RED, (0, 0, 0)),
    a_geom("capsule", (0.08, 0.2, 0), BLUE, (0, 0, 0.5)),
)
#: One of each kind, side by side, all on body 0 but the floor.
EVERY_KIND = (
    a_geom("plane", (0, 0, 0.01), GREY, (0, 0, 0), -1),
    a_geom("sphere", (0.2, 0, 0), RED, (-1.0, 0, 0.2)),
    a_geom("capsule", (0.12, 0.2, 0), BLUE, (-0.55, 0, 0.32)),
    a_geom("ellipsoid", (0.12, 0.2, 0.3), GREEN, (-0.1, 0, 0.3)),
    a_geom("cylinder", (0.16, 0.25, 0), YELLOW, (0.35, 0, 0.25)),
    a_geom("box", (0.18, 0.18, 0.18), PINK, (0.8, 0, 0.18)),
    a_geom("mesh", (0.2, 0.2, 0.2), BLUE, (1.2, 0, 0.2)),
)
#: A tetrahedron.
_CORNERS = ((-20_000, -20_000, -20_000), (20_000, -20_000, -20_000), (0, 20_000, -20_000), (0, 0, 25_000))
_FACES = ((0, 1, 2), (0, 1, 3), (1, 2, 3), (2, 0, 3))


def a_header(
    geoms: Sequence[Mapping[str, Any]] = GEOMS, bodies: Sequence[str] = ("box",), **more: Any
) -> dict[str, Any]:
    """Of a scene file; `more` replaces entries."""
    mesh = {"vertices": 0, "count": 4, "triangles": 24, "faces": 4, "wide": False, "place": [0, 0, 0], "unit": 1e-5}
    return {
        "version": 1, "bodies": list(bodies), "geoms": [dict(geom) for geom in geoms], "meshes": [mesh],
        "camera": dict(CAMERA), **more,
    }  # fmt: skip


def scene_bytes(header: Mapping[str, Any], binary: bytes | None = None) -> bytes:
    """The file. `binary`: by default a mesh of 4 vertices and 4 faces."""
    text = json.dumps(header).encode()
    mesh = b"".join(struct.pack("<3h", *corner) for corner in _CORNERS)
    mesh += b"".join(struct.pack("<3H", *face) for face in _FACES)
    gap = bytes(-(4 + len(text)) % 4)
    return gzip.compress(struct.pack("<I", len(text)) + text + gap + (mesh if binary is None else binary), mtime=0)


def put_scene(folder: Path, data: bytes) -> str:
    """Write a scene beside the rings; its name."""
    name = hashlib.sha256(data).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.scene").write_bytes(data)
    return name


def a_jpeg(red: int = 200, size: tuple[int, int] = (64, 48)) -> bytes:
    """A picture of one colour."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", size, (red, 40, 40)).save(out, "JPEG")
    return out.getvalue()


class FakeAgent:
    """Writes one ring as a job does. `at`: the clock of its batches, which each one moves on."""

    def __init__(self, folder: Path, lane: str = "any", *, scene: str | None = None) -> None:
        self.folder = folder
        self.scene = scene or put_scene(folder, scene_bytes(a_header()))
        self.ring = RingWriter(folder / f"{lane}.ring")
        self.at, self.step = time.time(), 0

    def header(self, **more: Any) -> dict[str, Any]:
        """Of the next batch."""
        self.at, self.step = max(self.at + 0.001, time.time()), self.step + 6
        return {
            "at": self.at, "task": "push-v3", "episode": 3, "step": self.step, "attempt": 1, "origin": "training",
            "return": 12.5, "success": None, "facts": {}, **more,
        }  # fmt: skip

    def pose(self, *places: Sequence[float], quat: Sequence[float] = STRAIGHT, bodies: int = 1, **more: Any) -> None:
        """A batch of a picture for each place; every one of the `bodies` is there."""
        turn = [round(32_767 * one) for one in quat]
        row = [[*(round(one / UNIT) for one in place), *turn] * bodies for place in places]
        body = b"".join(struct.pack(f"<{7 * bodies}h", *numbers) for numbers in row)
        said = {"scene": self.scene, "frames": len(places), "bodies": bodies, "place": [0, 0, 0], "unit": UNIT}
        assert self.ring.write(POSE, packed(self.header(**{**said, "dt": 0.03, **more}), body))

    def jpeg(self, data: bytes, **more: Any) -> None:
        """A picture."""
        assert self.ring.write(JPEG, packed(self.header(**more), data))

    def facts(self, **facts: Any) -> None:
        """Words and numbers alone."""
        assert self.ring.write(FACTS, packed(self.header(facts=facts)))


def live_folder(shared: Path, run: str, slot: int) -> Path:
    """Where a job of the slot writes what it shows."""
    return shared / "v1" / "runs" / run / str(slot) / "live"


def swing(k: int, width: float = 0.7) -> tuple[float, float, float]:
    """The k-th place of a box that goes to and fro."""
    return width * math.sin(0.12 * k), 0.0, 0.25
