"""The folder of one contributor: what came in, what was made of it. Mechanics only: the learner judges.

::

    inbox/<who>/new/<run_id>/<slot>/<sha256>           waiting for the slot's learner
    inbox/<who>/accepted/<run_id>/<slot>/<sha256>      in use; stays until two checkpoints have its rows
    inbox/<who>/quarantine/<run_id>/<slot>/<sha256>    refused, with <sha256>.reason.json beside it
    inbox/<who>/verdicts/<sha256>.json                 the answer, until the contributor has fetched it
    inbox/<who>/counts/  dropped.json  seen.json  held.json  untrue/    `syncd.shared.counts`
    inbox/<who>/live/<run_id>/<slot>/                  agents that may be watched, while its machine offers them

Every move is one rename, and what explains it is written before it: after a kill at any point each segment lies in
exactly one of the folders, and doing the step again finishes it. A segment's name is the sha256 of its bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from anchorleg.files import fsync_folder, make_shared_folder, sweep_temporary
from anchorleg.live.wanted import LANE, scene_name
from syncd.shared.counts import Counts, held, note, release
from syncd.shared.layout import (
    NAME,
    SHA256,
    SLOT,
    FoundFile,
    Shared,
    checked_name,
    checked_sha256,
    files_in,
    folder_names,
    put,
    put_json,
    read_hint,
)

#: Compressed bytes of one segment. 500 steps of Meta-World have 45 kB; ten times that is room for other simulators.
MAX_SEGMENT_BYTES = 1024 * 1024
_LIVE = re.compile(rf"({LANE.pattern})\.ring|{SHA256.pattern}\.scene")


@dataclass(frozen=True)
class InboxLimits:
    """What one contributor may take of the owner's disk: 5,000 segments are 2.5 million steps, which a learner takes in
    within an hour. `verdicts` are handed out at once, the others when these are acknowledged.
    """

    waiting_segments: int = 5_000
    waiting_bytes: int = 512 * 1024 * 1024
    quarantined: int = 1_000
    quarantined_bytes: int = 256 * 1024 * 1024
    verdicts: int = 1_000
    verdicts_kept: int = 5_000


class InboxVerdict(BaseModel):
    """What the learner said of one segment. `reason` is one word and "" where it was accepted; `at` unix seconds."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sha256: str
    accepted: bool
    reason: str = ""
    sentence: str = ""
    at: float = 0.0


@dataclass(frozen=True)
class Usage:
    """How much there is of something."""

    segments: int
    bytes: int


State = Literal["new", "accepted", "quarantine"]


@dataclass(frozen=True)
class Inbox:
    """The inbox of contributor `who`; nothing need exist yet. All calls may raise OSError."""

    who: str
    path: Path
    limits: InboxLimits = InboxLimits()

    @classmethod
    def of(cls, shared: Shared, who: str) -> Self:
        """The inbox of one contributor; it need not exist. Errors: ValueError where the name is none."""
        return cls(who=checked_name(who, "contributor"), path=shared.inbox_folder / who)

    @classmethod
    def all_of(cls, shared: Shared) -> list[Self]:
        """The inboxes that exist, sorted by name."""
        return [cls.of(shared, who) for who in folder_names(shared.inbox_folder) if NAME.fullmatch(who)]

    def place(self, state: State, run_id: str, slot: int) -> Path:
        """Folder of one slot's segments in one state. Errors: ValueError for what is no run id or slot."""
        if not SLOT.fullmatch(str(slot)):
            raise ValueError(f"slot {slot!r} is not a slot number")
        return self.path / state / checked_name(run_id, "run id") / str(slot)

    def waiting(self, run_id: str, slot: int, *, now: float) -> list[Path]:
        """Segments that wait for this slot's learner, oldest first.

        Foreign names, links and folders are passed over; what is too large is refused (reason `size`) and counted.
        `now` is for that record.
        """
        found = []
        for file in regular_files(self.place("new", run_id, slot), SHA256.fullmatch):
            if file.bytes > MAX_SEGMENT_BYTES:
                words = f"it has {file.bytes} bytes; the limit is {MAX_SEGMENT_BYTES}"
                self.refuse(file.path, "size", words, now=now, keep=False)
                self.note(run_id, slot, Counts(refused={"size": 1}, last_at=now))
            else:
                found.append(file)
        return [file.path for file in sorted(found, key=lambda file: (file.arrived_at, file.path.name))]

    def read(self, path: Path) -> bytes:
        """The bytes of a segment, at most one more than `MAX_SEGMENT_BYTES`. No link or device is ever opened.

        Errors: FileNotFoundError where it was moved meanwhile; OSError.
        """
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileNotFoundError(2, "not a regular file", str(path))
            return file.read(MAX_SEGMENT_BYTES + 1)

    def accept(self, path: Path, *, now: float) -> Path:
        """Write the verdict and move a waiting segment to `accepted/`; returns its new path. May be repeated."""
        run_id, slot, sha256 = _named(path)
        self.write_verdict(sha256, accepted=True, now=now)
        target = self.place("accepted", run_id, slot) / sha256
        _move(path, target)
        return target

    def refuse(self, path: Path, reason: str, sentence: str, *, now: float, keep: bool = True) -> None:
        """Write the verdict, and move a segment to `quarantine/` with the reason beside it, or delete it: where there
        is nothing to look into (`keep` False), or where quarantine is full. May be repeated.

        Counting is the caller's (`note`, in batches). Errors: FileNotFoundError where it is in neither folder.
        """
        run_id, slot, sha256 = _named(path)
        target = self.place("quarantine", run_id, slot) / sha256
        if not (os.path.lexists(path) or target.exists()):  # the learner was quicker: its verdict must stay
            raise FileNotFoundError(errno.ENOENT, "it no longer exists", str(path))
        verdict = self.write_verdict(sha256, accepted=False, reason=reason, sentence=sentence, now=now)
        if not target.exists() and (not keep or self._is_quarantine_full()):
            path.unlink(missing_ok=True)
            return
        make_shared_folder(target.parent)
        put_json(reason_of(target), verdict.model_dump())
        _move(path, target)

    def _is_quarantine_full(self) -> bool:
        """By names alone: a segment and its reason are two."""
        folders = (self.path / "quarantine" / run_id / slot for run_id, slot in self.slots_in("quarantine"))
        return sum(len(os.listdir(folder)) for folder in folders) >= 2 * self.limits.quarantined

    def write_verdict(
        self, sha256: str, *, accepted: bool, reason: str = "", sentence: str = "", now: float
    ) -> InboxVerdict:
        """Leave the answer for the contributor. `accept` and `refuse` do it themselves."""
        verdict = InboxVerdict(
            sha256=checked_sha256(sha256), accepted=accepted, reason=reason, sentence=sentence[:500], at=now
        )
        make_shared_folder(self.path / "verdicts")
        put_json(self.path / "verdicts" / f"{sha256}.json", verdict.model_dump())
        return verdict

    def verdicts(self, without: Container[str] = ()) -> list[InboxVerdict]:
        """Answers that the contributor has not acknowledged, `limits.verdicts` at most; torn ones are passed over.

        `without`: sums of segments whose answers it has.
        """
        files = verdict_files(self.path / "verdicts", without)
        files.sort(key=lambda file: (file.arrived_at, file.path.name))
        found = (read_hint(InboxVerdict, file.path) for file in files[: self.limits.verdicts])
        return [verdict for verdict in found if verdict is not None]

    def acknowledge(self, sha256s: Iterable[str]) -> None:
        """The contributor has these verdicts: they go. Errors: ValueError for what is no sum."""
        for sha256 in sha256s:
            (self.path / "verdicts" / f"{checked_sha256(sha256)}.json").unlink(missing_ok=True)

    def accepted(self, run_id: str, slot: int, sha256: str) -> Path:
        """Where an accepted segment lies; it need not exist."""
        return self.place("accepted", run_id, slot) / checked_sha256(sha256)

    def find(self, run_id: str, slot: int, sha256: str) -> Path | None:
        """A segment that a journal names: accepted, or (a kill came between) still waiting; None: neither."""
        for state in ("accepted", "new"):
            path = self.place(state, run_id, slot) / checked_sha256(sha256)
            if path.is_file() and not path.is_symlink():
                return path
        return None

    def consumed(self, run_id: str, slot: int, sha256s: Iterable[str]) -> None:
        """A published checkpoint has the rows of these: their files go."""
        for sha256 in sha256s:
            self.accepted(run_id, slot, sha256).unlink(missing_ok=True)

    def usage(self, *states: State) -> Usage:
        """Segments and bytes in these states."""
        files = [file for state in states for file in self.files(state)]
        return Usage(segments=len(files), bytes=sum(file.bytes for file in files))

    def claimed(self) -> Usage:
        """What counts against the quota: what waits, and the rings and scenes of agents that may be watched."""
        waiting = self.usage("new")
        shown = sum(file.bytes for folder in self.live_folders() for file in live_files(folder))
        return Usage(waiting.segments, waiting.bytes + shown)

    def live_folders(self) -> list[Path]:
        """The folders of agents that may be watched, while its machine offers them; none behind a link."""
        top = self.path / "live"
        if self.path.is_symlink() or top.is_symlink():
            return []
        return [top / run_id / slot for run_id in folder_names(top) for slot in folder_names(top / run_id)]

    def files(self, state: State) -> Iterator[FoundFile]:
        """All segments in one state, of all runs and slots."""
        for run_id, slot in self.slots_in(state):
            yield from regular_files(self.path / state / run_id / slot, SHA256.fullmatch)

    def slots_in(self, state: State) -> list[tuple[str, str]]:
        """(run id, slot) of the folders in one state. None behind a link: clearing away must not reach elsewhere."""
        if self.path.is_symlink() or (self.path / state).is_symlink():
            return []
        runs = [name for name in folder_names(self.path / state) if not name.startswith(".")]
        return [(run_id, slot) for run_id in runs for slot in folder_names(self.path / state / run_id)]

    def note(self, run_id: str, slot: int, more: Counts) -> None:
        """Add to the contributor's counts, which outlive their segments. One slot's learner writes one file of them."""
        note(self.path, f"{run_id}.{slot}", more)

    @property
    def is_dropped(self) -> bool:
        """Whether this contributor was thrown out."""
        return (self.path / "dropped.json").exists()

    def drop(self, *, by: str, now: float) -> int:
        """Throw the contributor out: what waits goes to quarantine, what comes is refused. Returns how many waited.

        May be repeated; a second call finishes what a killed first one began. The learner takes the rows out.
        """
        make_shared_folder(self.path)
        if not self.is_dropped:
            put_json(self.path / "dropped.json", {"at": now, "by": by})
        moved = 0
        for file in list(self.files("new")):
            moved += self.refuse_if_there(file.path, "dropped", f"{self.who} was dropped by {by}", now)
        if moved:
            note(self.path, "drop", Counts(refused={"dropped": moved}))  # nothing was heard of it
        return moved

    def readmit(self) -> bool:
        """Take the contributor back; whether it was dropped or held. What is in quarantine stays there."""
        was_dropped, was_held = self.is_dropped, release(self.path)
        if was_dropped:
            (self.path / "dropped.json").unlink(missing_ok=True)
        if was_dropped or was_held:
            fsync_folder(self.path)
        return was_dropped or was_held

    def refuse_if_there(self, path: Path, reason: str, sentence: str, now: float) -> bool:
        """`refuse`; False where the learner, or another process that moves it, was quicker."""
        try:
            self.refuse(path, reason, sentence, now=now)
        except FileNotFoundError:
            return False
        return True


def _named(path: Path) -> tuple[str, int, str]:
    """(run id, slot, sha256) of a segment's path. Errors: ValueError."""
    slot = path.parent.name
    if not SLOT.fullmatch(slot):
        raise ValueError(f"{path} is not a segment of an inbox")
    return checked_name(path.parent.parent.name, "run id"), int(slot), checked_sha256(path.name)


def reason_of(path: Path) -> Path:
    """Where it stands why a segment in quarantine was refused."""
    return path.with_name(f"{path.name}.reason.json")


def _move(path: Path, target: Path) -> None:
    """Rename, durably. Where `path` is gone and `target` is there it was done before."""
    make_shared_folder(target.parent)
    try:
        os.replace(path, target)
    except FileNotFoundError:
        if not target.exists():
            raise
    fsync_folder(target.parent)


def regular_files(folder: Path, is_ours: Callable[[str], Any]) -> list[FoundFile]:
    """Regular files with our names in a folder that is no link; what vanishes meanwhile is passed over."""
    return [] if folder.is_symlink() else files_in(folder, is_ours)


def live_files(folder: Path) -> list[FoundFile]:
    """The rings and scenes in one of the folders of agents that may be watched."""
    return regular_files(folder, _LIVE.fullmatch)


def verdict_files(folder: Path, without: Container[str] = ()) -> list[FoundFile]:
    """The answers that lie in an inbox's `verdicts/`, without those on the segments with these sums."""

    def is_one(name: str) -> bool:
        sha256 = name.removesuffix(".json")
        return sha256 != name and SHA256.fullmatch(sha256) is not None and sha256 not in without

    return regular_files(folder, is_one)


#: Contributors of whom one run's watchers are told; a class has some thirty.
MOST_OFFERED = 64
#: In one folder: a task has one, and MT50 is watched a few tasks at a time.
MOST_SCENES = 16
#: Rings that nobody looked through for a day: a viewer begins another one.
RING_KEPT_S = 86_400.0


def may_show(inbox: Inbox, now: float) -> bool:
    """Whether anybody may watch this contributor's agents: not while it is dropped or held. `now`: unix s."""
    return not inbox.is_dropped and held(inbox.path, now) is None


def offered(shared: Shared, run_id: str, now: float) -> dict[int, tuple[str, ...]]:
    """Slot → whose agents play its policy, and may be watched now (unix s), by name. Errors: OSError."""
    found: dict[int, tuple[str, ...]] = {}
    count = 0
    for inbox in Inbox.all_of(shared):
        if (inbox.path / "live").is_symlink():
            continue
        slots = [int(name) for name in folder_names(inbox.path / "live" / run_id) if SLOT.fullmatch(name)]
        if not slots or not may_show(inbox, now):
            continue
        for slot in slots[: MOST_OFFERED - count]:
            found[slot] = (*found.get(slot, ()), inbox.who)
            count += 1
    return found


def withdraw(folder: Path) -> None:
    """Nobody may watch these agents any more: their files go, and the folder. Errors: OSError."""
    for file in live_files(folder):
        file.path.unlink(missing_ok=True)
    sweep_temporary(folder, math.inf)  # else a server that was killed in the middle of one offers them for ever
    with contextlib.suppress(OSError):  # somebody else's file keeps it
        for empty in (folder, *folder.parents[:3]):  # the run's, `live`; in a mirror the contributor's
            os.rmdir(empty)


def keep_scene(folder: Path, sha256: str, data: bytes) -> bool:
    """Put a scene that came to its place, of which the newest stay; whether it is what its name says, the sum of
    its bytes. What it shows is judged by the viewer that draws it. Errors: OSError.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        return False
    make_shared_folder(folder)
    put(folder / scene_name(sha256), data)
    prune_scenes(folder)
    return True


def prune_scenes(folder: Path) -> None:
    """Keep the newest scenes of a folder. Errors: OSError."""
    scenes = files_in(folder, lambda name: name.endswith(".scene"))
    for file in sorted(scenes, key=lambda file: -file.written_at)[MOST_SCENES:]:
        os.unlink(file.path)


def prune_live(folder: Path, *, now: float) -> None:
    """What nobody looks through any more goes; `now`: unix s. Errors: OSError."""
    prune_scenes(folder)
    for file in files_in(folder, lambda name: name.endswith(".ring")):
        if now - file.written_at > RING_KEPT_S:
            os.unlink(file.path)
