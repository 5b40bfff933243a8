"""Scenes on their way in: what agents at play stand in, fetched in slices whenever nothing else is wanted.

A scene's name is the sum of its bytes, so what lies here under such a name is right. Its content is judged by the
viewer that draws it. A laptop fetches for its mirror, and a server from a laptop whose agents somebody watches.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from anchorleg.files import make_shared_folder
from anchorleg.live.batches import MOST_SCENE_BYTES
from anchorleg.live.wanted import folder_of
from syncd.errors import GoneError, NoRoomError, StorageError, SyncError
from syncd.shared.layout import Shared, files_in, put

#: A second at 256 kbit/s.
SLICE_BYTES = 32 * 1024
#: In one folder: a task has one, and MT50 is watched a few tasks at a time.
MOST_SCENES = 32
#: One that is not there (yet), or not what its name says, is asked for again after this.
AGAIN_AFTER_S = 30.0
#: A slice that does not come is given up.
STUCK_AFTER_S = 120.0
#: Rings that nobody looked through for a day: a viewer begins another one.
RING_KEPT_S = 86_400.0

#: Run id, slot, lane (`anchorleg.live.wanted`).
Agent = tuple[str, int, str]


class Slice:
    """`SLICE_BYTES` of a file from `offset` on; less where it ends. `data` is whole when it is `done` without error."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.data = b""
        self.done = False
        self.error: SyncError | None = None

    def append(self, offset: int, payload: bytes) -> None:
        """The next bytes. Nothing is kept of more than was asked for."""
        if self.done:
            return
        if offset != self.offset + len(self.data) or len(self.data) + len(payload) > SLICE_BYTES:
            self.finish(GoneError("scene.other-slice"))
            return
        self.data += payload

    def end(self) -> None:
        """The other side has sent everything."""
        self.finish(None)

    def finish(self, error: SyncError | None) -> None:
        """No more comes; `error` says why it is not whole."""
        if not self.done:
            self.done, self.error = True, error


class Slicing(Protocol):
    """One slice at a time, from the other side of a connection. Errors: UnreachableError."""

    def ask(self, agent: Agent, sha256: str, offset: int) -> None:
        """Begin to fetch a slice of a scene that `agent` stands in. The one before is forgotten."""

    def sliced(self) -> Slice | None:
        """The slice that was asked for, once it is here; it is handed out once."""

    def forget(self) -> None:
        """Take nothing more of the slice under way."""


class _Wanted(NamedTuple):
    agent: Agent
    sha256: str


class Scenes:
    """Fetches one scene at a time, to its place below `shared`. `say` takes a sentence; `monotonic` in s.

    `check` says whether an agent's folder may take so many bytes more (NoRoomError, StorageError, OSError: it may not),
    and `changed` hears that it did. `most`: scenes that one folder keeps.
    """

    def __init__(
        self,
        shared: Shared,
        check: Callable[[Agent, int], None],
        say: Callable[[str], None],
        monotonic: Callable[[], float],
        *,
        changed: Callable[[Agent], None] = lambda _: None,
        most: int = MOST_SCENES,
    ) -> None:
        self._shared, self._check, self._say, self._monotonic = shared, check, say, monotonic
        self._changed, self._most = changed, most
        self._wanted: dict[_Wanted, None] = {}
        self._not_before: dict[_Wanted, float] = {}
        self._now: _Wanted | None = None
        self._data = b""
        self._asked_at: float | None = None

    def begin(self) -> None:
        """Another connection: nothing is under way."""
        self._now, self._data, self._asked_at = None, b"", None

    def want(self, agent: Agent, sha256: str) -> None:
        """A batch of the agent names it. Of a hundred names only the newest few are kept: the other side may lie."""
        wanted = _Wanted(agent, sha256)
        if self._path(wanted).exists() or wanted == self._now:
            return
        self._wanted.pop(wanted, None)
        self._wanted[wanted] = None
        while len(self._wanted) > self._most:
            self._wanted.pop(next(iter(self._wanted)))

    def turn(self, slicing: Slicing, may_fetch: Callable[[], bool]) -> None:
        """Take what came, and ask for the next slice where `may_fetch`. Errors: those of `slicing`."""
        found = slicing.sliced()
        if found is not None and self._now is not None:
            self._asked_at = None
            if found.error is not None:
                self._give_up("")
            else:
                self._take(self._now, found.data)
        elif self._asked_at is not None and self._monotonic() - self._asked_at > STUCK_AFTER_S:
            slicing.forget()
            self._give_up("")
        if self._now is None:
            self._choose()
        if self._now is not None and self._asked_at is None and may_fetch():
            self._asked_at = self._monotonic()
            slicing.ask(self._now.agent, self._now.sha256, len(self._data))

    def _path(self, scene: _Wanted) -> Path:
        return self._shared.path.joinpath(*folder_of(*scene.agent), scene_name(scene.sha256))

    def _choose(self) -> None:
        now = self._monotonic()
        due = (each for each in self._wanted if now >= self._not_before.get(each, now))
        chosen = next(due, None)
        if chosen is None:
            return
        del self._wanted[chosen]
        self._now, self._data = chosen, b""
        try:
            self._check(chosen.agent, MOST_SCENE_BYTES)
        except (NoRoomError, StorageError, OSError) as error:
            self._give_up(str(error))

    def _take(self, scene: _Wanted, data: bytes) -> None:
        self._data += data
        what = f"a scene of {scene.agent[0]}/{scene.agent[1]} is left out"
        if len(self._data) > MOST_SCENE_BYTES:
            self._give_up(f"{what}: it is larger than any is")
        elif len(data) < SLICE_BYTES:
            if hashlib.sha256(self._data).hexdigest() != scene.sha256:
                self._give_up(f"{what}: it has another sum than its name")
                return
            path = self._path(scene)
            try:
                make_shared_folder(path.parent)
                put(path, self._data)
                prune_scenes(path.parent, self._most)
                self._changed(scene.agent)
            except OSError as error:
                self._give_up(f"{what}: its folder cannot be written ({error.strerror})")
                return
            self.begin()

    def _give_up(self, sentence: str) -> None:
        if self._now is not None:
            now = self._monotonic()
            self._not_before = {each: at for each, at in self._not_before.items() if at > now}
            self._not_before[self._now] = now + AGAIN_AFTER_S
        self.begin()
        if sentence:
            self._say(sentence)


def prune_scenes(folder: Path, most: int = MOST_SCENES) -> None:
    """Keep the newest `most` scenes of a folder. Errors: OSError."""
    scenes = files_in(folder, lambda name: name.endswith(".scene"))
    for file in sorted(scenes, key=lambda file: -file.written_at)[most:]:
        os.unlink(file.path)


def prune_live(folder: Path, *, now: float) -> None:
    """What nobody looks through any more goes; `now`: unix s. Errors: OSError."""
    prune_scenes(folder)
    for file in files_in(folder, lambda name: name.endswith(".ring")):
        if now - file.written_at > RING_KEPT_S:
            os.unlink(file.path)


def scene_name(sha256: str) -> str:
    """The name of a scene's file."""
    return f"{sha256}.scene"
