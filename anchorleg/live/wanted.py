"""Who wants to see which agents: `$SHARED/v1/runs/<run>/live.json`. Nothing is sent of what nobody asked for.

Each watcher on the machine of the folder (a `syncd serve` with somebody at its other end, a `viewer`) renews its entry
every 5 s; jobs look every 2 s. Whose beat stands still for 15 s *of the reader's own clock* has gone, so no two clocks
need to agree. The file is replaced as a whole by several writers without a lock: an update that another one overwrites
is there again 5 s later. Entries stay in their order, so of lanes beyond the four those are shown that were wanted
first.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from anchorleg.files import read_regular, write_bytes

FILE = "live.json"
RENEW_EVERY_S = 5.0
LOOK_EVERY_S = 2.0
GONE_AFTER_S = 15.0
#: All watchers of a run together.
MOST_LANES = 4
MOST_WATCHERS = 64
MOST_BYTES = 64 * 1024
MOST_FPS = 60
#: What a slot shows: "any", the task that was not shown for longest; or "t3", its task number 3.
ANY = "any"
LANE = re.compile(r"any|t(0|[1-9][0-9]{0,3})")
#: What can be watched: a lane of the slot's job, or `any@ben`, one of the contributor's who plays for the slot.
SHOWN_LANE = re.compile(rf"({LANE.pattern})(@[A-Za-z0-9][A-Za-z0-9._-]{{0,80}})?")
_WATCHER = re.compile(r"[0-9a-f]{8}")
#: Names of guests begin with it, those of others never do: what guests want comes last.
_GUEST = "f"


class Wish(NamedTuple):
    """One agent that somebody wants to see, with so many pictures a second."""

    slot: int
    lane: str
    fps: int


class Watcher(NamedTuple):
    """One entry: a count that it raises, and what it wants."""

    beat: int
    wishes: tuple[Wish, ...]


def contributor_of(lane: str) -> str:
    """Whose agent a lane shows; "": the slot's job's."""
    return lane.partition("@")[2]


def folder_of(run_id: str, slot: int, lane: str) -> tuple[str, ...]:
    """Where the ring and the scenes of a lane lie, below a shared folder or a mirror: the folders' names."""
    who = contributor_of(lane)
    return ("v1", "inbox", who, "live", run_id, str(slot)) if who else ("v1", "runs", run_id, str(slot), "live")


def ring_name(lane: str) -> str:
    """The name of a lane's ring in that folder."""
    return f"{lane.partition('@')[0]}.ring"


def scene_name(sha256: str) -> str:
    """The name of a scene's file there."""
    return f"{sha256}.scene"


def parsed(data: bytes) -> dict[str, Watcher]:
    """The watchers of a file by their names; what is damaged is left out. Pure."""
    try:
        value = json.loads(data)
        entries = value["watchers"].items()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    found = {}
    for name, entry in list(entries)[:MOST_WATCHERS]:
        watcher = _watcher(entry)
        if watcher is not None and _WATCHER.fullmatch(name):
            found[name] = watcher
    return found


def _watcher(entry: object) -> Watcher | None:
    try:
        beat, wishes = entry["beat"], entry["wishes"]  # type: ignore[index]
        made = tuple(Wish(slot, lane, fps) for slot, lane, fps in wishes[:MOST_LANES])
    except (KeyError, TypeError, ValueError):
        return None
    numbers = [beat, *(wish.slot for wish in made), *(wish.fps for wish in made)]
    if any(type(number) is not int or not 0 <= number < 2**53 for number in numbers):
        return None
    if any(not isinstance(wish.lane, str) or not SHOWN_LANE.fullmatch(wish.lane) for wish in made):
        return None
    return Watcher(beat, tuple(wish._replace(fps=min(max(wish.fps, 1), MOST_FPS)) for wish in made))


def as_bytes(watchers: Mapping[str, Watcher]) -> bytes:
    """The file that says so. Pure."""
    value = {name: {"beat": one.beat, "wishes": [list(wish) for wish in one.wishes]} for name, one in watchers.items()}
    return json.dumps({"watchers": value}).encode() + b"\n"


def wishes_of(watchers: Iterable[Watcher]) -> dict[tuple[int, str], int]:
    """(slot, lane) → pictures a second: of all together, the first four lanes, each as fast as its fastest. Pure."""
    found: dict[tuple[int, str], int] = {}
    for watcher in watchers:
        for wish in watcher.wishes:
            place = (wish.slot, wish.lane)
            if place in found or len(found) < MOST_LANES:
                found[place] = max(found.get(place, 0), wish.fps)
    return found


class Living:
    """Which watchers are there, by whether their beats move on this process's clock (monotonic s)."""

    def __init__(self) -> None:
        self._moved: dict[str, tuple[int, float]] = {}

    def of(self, watchers: Mapping[str, Watcher], now: float) -> dict[str, Watcher]:
        """Those of `watchers` that have moved within the last 15 s, or are new to us."""
        kept = {}
        for name, watcher in watchers.items():
            beat, at = self._moved.get(name, (-1, now))
            kept[name] = (watcher.beat, now if watcher.beat != beat else at)
        self._moved = kept
        return {name: one for name, one in watchers.items() if now - kept[name][1] < GONE_AFTER_S}


def read(path: Path) -> dict[str, Watcher]:
    """The watchers that the file names; none where it cannot be read."""
    try:
        return parsed(read_regular(path, MOST_BYTES))
    except OSError:
        return {}


class Asking:
    """A watcher's side: keeps its entry in `path` alive. Call `renew` often; it writes when there is something to.

    `is_guest`: somebody else's key. It gets what the folder's own watchers leave of the lanes.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic, *, is_guest: bool = False) -> None:
        self._path, self._clock = path, clock
        name = os.urandom(4).hex()
        self._name = (_GUEST if is_guest else "0123456789abcde"[int(name[0], 16) % 15]) + name[1:]
        self._living = Living()
        self._beat, self._next_at = 0, 0.0
        self._wishes: tuple[Wish, ...] = ()
        self._beyond: set[tuple[int, str]] = set()

    def renew(self, wishes: tuple[Wish, ...]) -> bool:
        """Ask for `wishes`, at once where they changed. Whether it was time to write. Errors: OSError (a folder that is
        somebody else's, a full disk); it is tried again when it is time to.
        """
        now = self._clock()
        if wishes == self._wishes and (not wishes or now < self._next_at):
            return False
        found = self._living.of(read(self._path), now)
        if wishes:
            self._beat += 1
            found[self._name] = Watcher(self._beat, wishes)  # in its old place, where it has one
        else:
            found.pop(self._name, None)
        self._wishes, self._next_at = wishes or self._wishes, now + RENEW_EVERY_S
        ordered = dict(sorted(found.items(), key=lambda item: item[0].startswith(_GUEST)))
        write_bytes(self._path, as_bytes(ordered), mode=0o640)
        self._wishes = wishes
        self._beyond = {(wish.slot, wish.lane) for wish in wishes} - wishes_of(ordered.values()).keys()
        return True

    def is_beyond(self, slot: int, lane: str) -> bool:
        """Whether what was asked for last is one too many: others had asked for four lanes before."""
        return (slot, lane) in self._beyond

    def withdraw(self) -> None:
        """Ask for nothing any more. Errors: OSError."""
        self.renew(())


class Asked:
    """What is wanted of a slot's job, or of the agents of `who` that play for it. Reads the file every 2 s at most."""

    def __init__(self, path: Path, slot: int, clock: Callable[[], float] = time.monotonic, *, who: str = "") -> None:
        self._path, self._slot, self._clock, self._who = path, slot, clock, who
        self._living = Living()
        self._next_at = float("-inf")
        self._lanes: dict[str, int] = {}

    def lanes(self) -> dict[str, int]:
        """Lane, without its contributor → pictures a second."""
        now = self._clock()
        if now >= self._next_at:
            self._next_at = now + LOOK_EVERY_S
            wanted = wishes_of(self._living.of(read(self._path), now).values())
            self._lanes = {
                lane.partition("@")[0]: fps
                for (slot, lane), fps in wanted.items()
                if slot == self._slot and contributor_of(lane) == self._who
            }
        return self._lanes
