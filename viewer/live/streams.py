"""One ring that is watched: what came since the last look, checked. What cannot be shown is counted and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anchorleg.live.batches import JPEG, POSE, BadBatchError, checked
from anchorleg.live.ring import Cell, RingReader
from viewer.live.scenes import MOST_REACH_M, Scene, SceneShelf
from viewer.live.shown import CheckedBatch

#: Of one look: more than that is older than what is shown anyway.
MOST_A_LOOK = 3
#: Scenes of one ring that are remembered as sent.
MOST_SCENES = 16
#: Of a picture, on a side: a batch has 64 KiB at most, which may unpack to 65,535 pixels on a side.
MOST_PIXELS = 2048
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_ALONE = {0x01, *range(0xD0, 0xD8)}


class RingStream:
    """`bad`: how many batches could not be shown, `why`: the last one's reason, as a sentence, until a good one comes.
    `newest`: the last good one's header, `kind`: its kind. `scenes`: the newest ones that it named.
    """

    def __init__(self, path: Path, shelf: SceneShelf) -> None:
        self._reader = RingReader(path)
        self._folder, self._shelf = path.parent, shelf
        self._attempt = 0
        self.bad, self.why = 0, ""
        self.newest: dict[str, Any] = {}
        self.kind: int | None = None
        self.scenes: dict[str, Scene] = {}

    def look(self, now: float) -> tuple[CheckedBatch, ...]:
        """What came, oldest first, the newest three at most. `now`: s of any steady clock."""
        found = []
        for cell in self._reader.newer()[-MOST_A_LOOK:]:
            try:
                batch = self._checked(cell, now)
            except BadBatchError as error:
                self.bad += 1
                self.why = f"A batch of this agent cannot be shown: {error}."
                continue
            if batch is None:
                continue
            self.why, self.newest, self.kind = "", batch.header, batch.kind
            found.append(batch)
        return tuple(found)

    def _checked(self, cell: Cell, now: float) -> CheckedBatch | None:
        """None: of a job that is over and goes on writing. Errors: BadBatchError."""
        header, body = checked(cell.kind, cell.payload)
        if header["attempt"] < self._attempt:
            return None
        if cell.kind == JPEG:
            size = jpeg_size(body)
            if size is None or not all(0 < side <= MOST_PIXELS for side in size):
                raise BadBatchError("its picture is too large, or has no size")
        elif cell.kind == POSE:
            self._check_pose(header, now)
        self._attempt = header["attempt"]
        return CheckedBatch(cell.kind, header, body)

    def _check_pose(self, header: dict[str, object], now: float) -> None:
        place, unit = header["place"], header["unit"]
        if max(map(abs, place)) + 32_768 * unit > MOST_REACH_M:  # type: ignore[call-overload,operator]
            raise BadBatchError("its bodies are too far away to be drawn")
        sha256 = str(header["scene"])
        scene = self._shelf.get(self._folder, sha256, now)
        if isinstance(scene, str):
            raise BadBatchError(f"of its scene, {scene}")
        if scene is not None:
            if scene.bodies != header["bodies"]:
                raise BadBatchError(f"it has {header['bodies']} bodies, its scene {scene.bodies}")
            self.scenes.pop(sha256, None)
            self.scenes[sha256] = scene
            if len(self.scenes) > MOST_SCENES:
                del self.scenes[next(iter(self.scenes))]


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) that a JPEG says it has; None where its bytes do not say (ITU-T T.81, annex B)."""
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return None
        mark = data[at + 1]
        if mark == 0xFF or mark in _ALONE:
            at += 1 if mark == 0xFF else 2
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if mark in _FRAMES and at + 9 <= len(data):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        if length < 2 or mark in _FRAMES:
            return None
        at += 2 + length
    return None
