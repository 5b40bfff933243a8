"""Scenes on their way into the mirror: what agents at play stand in, fetched in slices whenever nothing else is wanted.

A scene's name is the sum of its bytes, so what lies here under such a name is right. Its content is judged by whoever
draws it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import NamedTuple

from anchorleg.live.batches import MOST_SCENE_BYTES
from syncd.errors import NoRoomError, StorageError
from syncd.laptop.capacity import Capacity
from syncd.shared.layout import SlotPlace, make_folder, put
from syncd.wire.viewing import SLICE_BYTES, Viewing

#: Of one slot: a task has one, and MT50 is watched a few tasks at a time.
MOST_SCENES = 32
#: One that is not there (yet), or not what its name says, is asked for again after this.
AGAIN_AFTER_S = 30.0
#: A slice that does not come is given up.
STUCK_AFTER_S = 120.0
#: Rings that nobody looked through for a day: a viewer begins another one.
RING_KEPT_S = 86_400.0


class _Wanted(NamedTuple):
    place: SlotPlace
    sha256: str


class Scenes:
    """Fetches one scene at a time. `say` takes a sentence; `monotonic` in s."""

    def __init__(self, capacity: Capacity, say: Callable[[str], None], monotonic: Callable[[], float]) -> None:
        self._capacity, self._say, self._monotonic = capacity, say, monotonic
        self._wanted: dict[_Wanted, None] = {}
        self._not_before: dict[_Wanted, float] = {}
        self._now: _Wanted | None = None
        self._data = b""
        self._asked_at: float | None = None

    def begin(self) -> None:
        """Another connection: nothing is under way."""
        self._now, self._data, self._asked_at = None, b"", None

    def want(self, place: SlotPlace, sha256: str) -> None:
        """A batch names it. Of a hundred names only the newest few are kept: a server may lie."""
        wanted = _Wanted(place, sha256)
        path = place.live / _name(sha256)
        if path.exists() or wanted == self._now:
            return
        self._wanted.pop(wanted, None)
        self._wanted[wanted] = None
        while len(self._wanted) > MOST_SCENES:
            self._wanted.pop(next(iter(self._wanted)))

    def turn(self, viewing: Viewing, may_fetch: Callable[[], bool]) -> None:
        """Take what came, and ask for the next slice where `may_fetch`: policies go first. Errors: UnreachableError."""
        found = viewing.sliced()
        if found is not None and self._now is not None:
            self._asked_at = None
            if found.error is not None:
                self._give_up("")
            else:
                self._take(self._now, found.data)
        elif self._asked_at is not None and self._monotonic() - self._asked_at > STUCK_AFTER_S:
            viewing.forget()
            self._give_up("")
        if self._now is None:
            self._choose()
        if self._now is not None and self._asked_at is None and may_fetch():
            place, sha256 = self._now
            self._asked_at = self._monotonic()
            viewing.ask(f"v1/runs/{place.run_id}/{place.slot}/live/{_name(sha256)}", len(self._data))

    def _choose(self) -> None:
        now = self._monotonic()
        due = (each for each in self._wanted if now >= self._not_before.get(each, now))
        chosen = next(due, None)
        if chosen is None:
            return
        del self._wanted[chosen]
        self._now, self._data = chosen, b""
        try:
            self._capacity.check_live(chosen.place, MOST_SCENE_BYTES)
        except (NoRoomError, StorageError, OSError) as error:
            self._give_up(str(error))

    def _take(self, scene: _Wanted, data: bytes) -> None:
        self._data += data
        what = f"a scene of {scene.place.run_id}/{scene.place.slot} is left out"
        if len(self._data) > MOST_SCENE_BYTES:
            self._give_up(f"{what}: it is larger than any is")
        elif len(data) < SLICE_BYTES:
            if hashlib.sha256(self._data).hexdigest() != scene.sha256:
                self._give_up(f"{what}: it has another sum than its name")
                return
            try:
                make_folder(scene.place.live)
                put(scene.place.live / _name(scene.sha256), self._data)
                prune_scenes(scene.place)
                self._capacity.changed(scene.place)
            except OSError as error:
                self._give_up(f"{what}: the mirror cannot be written ({error.strerror})")
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


def prune_scenes(place: SlotPlace, most: int = MOST_SCENES) -> None:
    """Keep the newest `most` scenes of a slot. Errors: OSError."""
    for entry in _entries(place, ".scene")[most:]:
        os.unlink(entry.path)


def prune_live(place: SlotPlace, *, now: float) -> None:
    """What nobody looks through any more goes; `now`: unix s. Errors: OSError."""
    prune_scenes(place)
    for entry in _entries(place, ".ring"):
        if now - entry.stat(follow_symlinks=False).st_mtime > RING_KEPT_S:
            os.unlink(entry.path)


def _entries(place: SlotPlace, suffix: str) -> list[os.DirEntry[str]]:
    """Newest first."""
    with contextlib.suppress(FileNotFoundError), os.scandir(place.live) as entries:
        found = [entry for entry in entries if entry.name.endswith(suffix)]
        return sorted(found, key=lambda entry: -entry.stat(follow_symlinks=False).st_mtime)
    return []


def _name(sha256: str) -> str:
    return f"{sha256}.scene"
