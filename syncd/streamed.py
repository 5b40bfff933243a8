"""What actors let others watch, and the client sends while somebody does.

::

    DIR/outbox/live/<run id>/live.json     whom somebody over there wants to see: the client writes, actors read
    DIR/outbox/live/<run id>/<slot>/       beat  <lane>.ring  <sha256>.scene: actors write, the client reads

The folder of a slot says that its agents may be watched, for as long as its beat moves: an actor that was killed is
gone 15 s later, by the reader's own clock.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from anchorleg.live.wanted import FILE, GONE_AFTER_S
from syncd.shared.inbox import live_files
from syncd.shared.layout import NAME, SLOT, folder_names

BEAT = "beat"
BEAT_EVERY_S = 3.0
_NONE = -1


class StreamedSlot:
    """An actor's side, for one slot: `live_file` says who is watched, `folder` is where what is shown goes.

    `clock`: monotonic s. Errors of the methods: OSError. Two of a machine that play for one slot share its folder.
    """

    def __init__(self, mirror: Path, run_id: str, slot: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.live_file = _top(mirror) / run_id / FILE
        self.folder = _top(mirror) / run_id / str(slot)
        self._clock, self._next_at = clock, float("-inf")

    def beat(self) -> None:
        """Say that the agents are at play, where it is time to; call it often."""
        if (now := self._clock()) < self._next_at:
            return
        self._next_at = now + BEAT_EVERY_S
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.folder / BEAT, "wb"):  # its time is what says it
            os.utime(self.folder / BEAT)

    def close(self) -> None:
        """They are not any more. What they showed goes with the client's next `tidy`: others may show here, too."""
        (self.folder / BEAT).unlink(missing_ok=True)


class StreamedSlots:
    """The client's side: the slots for which this machine's agents play and may be watched. `clock`: monotonic s."""

    def __init__(self, mirror: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._mirror, self._clock = mirror, clock
        self._moved: dict[tuple[str, int], tuple[int, float]] = {}

    def live_file(self, run_id: str) -> Path:
        """Where actors of that run are told who is watched."""
        return _top(self._mirror) / run_id / FILE

    def folder(self, run_id: str, slot: int) -> Path:
        """Where their rings and scenes lie."""
        return _top(self._mirror) / run_id / str(slot)

    def now(self) -> list[tuple[str, int]]:
        """(run id, slot) of those whose beat has moved within the last 15 s, or is new to us."""
        now, kept = self._clock(), {}
        for key, beat in _beats(_top(self._mirror)).items():
            before, at = self._moved.get(key, (_NONE, now))
            kept[key] = (beat, now if beat != before else at)
        self._moved = kept
        return sorted(key for key, (beat, at) in kept.items() if beat != _NONE and now - at < GONE_AFTER_S)

    def tidy(self) -> None:
        """Take away what actors that were killed left. Errors: OSError."""
        alive = self.now()
        for run_id, slot in _beats(_top(self._mirror)):
            if (run_id, slot) not in alive:
                _clear(self.folder(run_id, slot))


def _top(mirror: Path) -> Path:
    return mirror / "outbox" / "live"


def _beats(top: Path) -> dict[tuple[str, int], int]:
    """(run id, slot) → the beat, for each folder of a slot; `_NONE`: it has none."""
    found = {}
    with contextlib.suppress(OSError):
        for run_id in filter(NAME.fullmatch, folder_names(top)):
            for slot in filter(SLOT.fullmatch, folder_names(top / run_id)):
                try:
                    found[run_id, int(slot)] = os.stat(top / run_id / slot / BEAT).st_mtime_ns
                except FileNotFoundError:
                    found[run_id, int(slot)] = _NONE
    return found


def _clear(folder: Path) -> None:
    for path in (*(file.path for file in live_files(folder)), folder / BEAT):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the wishes of a run are the client's
        os.rmdir(folder)
