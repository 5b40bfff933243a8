"""Agents at play for tests: batches as a job makes them, wishes as a viewer leaves them."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anchorleg.live.batches import POSE, packed
from anchorleg.live.ring import RingReader, RingWriter
from anchorleg.live.wanted import FILE, Asking, Wish, folder_of, ring_name

HEADER: dict[str, Any] = {
    "at": 1.5, "task": "reach-v3", "episode": 3, "step": 7, "attempt": 0, "origin": "training", "return": -2.5,
    "success": None, "facts": {},
}  # fmt: skip
#: A scene's bytes; nobody here draws it.
SCENE = bytes(range(256)) * 300
SCENE_SUM = hashlib.sha256(SCENE).hexdigest()


def facts(**more: Any) -> bytes:
    """The payload of a FACTS batch."""
    return packed(HEADER | {"facts": more})


def pose(step: int, scene: str = SCENE_SUM, bodies: int = 3, **more: Any) -> bytes:
    """The payload of a POSE batch of one picture, which packing makes no smaller."""
    posed = {"scene": scene, "frames": 1, "bodies": bodies, "dt": 0.0125, "place": [0, 1.5, 0], "unit": 1e-4}
    return packed(HEADER | posed | {"step": step} | more, random.Random(step).randbytes(2 * bodies * 7))


def slot_of(root: Path, run_id: str, slot: int = 0) -> Path:
    """A slot's folder."""
    return root / "v1" / "runs" / run_id / str(slot)


def ring_of(root: Path, run_id: str, slot: int = 0, lane: str = "any") -> Path:
    """A ring's path."""
    return root.joinpath(*folder_of(run_id, slot, lane), ring_name(lane))


def write_ring(root: Path, run_id: str, payload: bytes, kind: int = POSE, slot: int = 0, lane: str = "any") -> None:
    """One batch as a job writes it."""
    assert RingWriter(ring_of(root, run_id, slot, lane)).write(kind, payload)


def newest_in(root: Path, run_id: str, slot: int = 0, lane: str = "any") -> bytes | None:
    """The newest batch in a ring."""
    cells = RingReader(ring_of(root, run_id, slot, lane)).newer()
    return cells[-1].payload if cells else None


def wish_in(root: Path, run_id: str, *wishes: Wish, clock: Callable[[], float] = time.monotonic) -> Asking:
    """A viewer at `root`, which asked once; it goes on as long as its `renew` is called."""
    (root / "v1" / "runs" / run_id).mkdir(parents=True, exist_ok=True)
    asking = Asking(root / "v1" / "runs" / run_id / FILE, clock)
    asking.renew(wishes or (Wish(0, "any", 30),))
    return asking
