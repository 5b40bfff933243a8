"""Rings and scenes in one folder: `<lane>.ring`, `<sha256>.scene`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from anchorleg.live.ring import RingWriter
from syncd import store
from trainer.envs.shown import Parts
from trainer.live.framebuffer import FrameBuffer
from trainer.live.scene import packed_scene

RING, SCENE = ".ring", ".scene"


class LiveFolder:
    """What one program shows. `origin` and `attempt`: as every batch says them; the latter may change. For one thread.

    Errors of all methods: OSError; ValueError where something cannot be shown.
    """

    def __init__(self, path: Path, origin: str, attempt: int) -> None:
        self._path, self._origin, self.attempt = path, origin, attempt
        self._rings: dict[str, RingWriter] = {}
        self._scenes: dict[str, str] = {}

    def add_scene(self, task: str, parts: Parts) -> None:
        """What `task` looks like: before the first frames of it that has poses."""
        data = packed_scene(parts)
        name = hashlib.sha256(data).hexdigest()
        path = self._path / f"{name}{SCENE}"
        store.make_shared_folder(self._path)
        if not path.exists():
            store.put_once(path, data)
        self._scenes[task] = name

    def write(self, lane: str, frames: FrameBuffer) -> None:
        """The next batch of `lane`; of a task without a scene the facts alone."""
        kind, payload = frames.payload(self._scenes.get(frames.task), self._origin, self.attempt)
        if lane not in self._rings:
            path = self._path / f"{lane}{RING}"
            store.make_shared_folder(self._path)
            store.put_once(path, b"")  # in a group's folder the group may read it
            self._rings[lane] = RingWriter(path)
        self._rings[lane].write(kind, payload)
