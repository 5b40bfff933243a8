"""What is on offer below one `$SHARED`, and what changed since the last message.

A disk of this machine tells of changes (`syncd.wire.events`), and is looked at when it does. Network folders tell
nobody, and cache what `stat` says for seconds: so `LATEST.json` is opened and read, again and again. Each kind of look
has a least interval; one that costs much is taken less often.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anchorleg.live.wanted import FILE as LIVE_FILE
from syncd.errors import DamagedPolicyError
from syncd.shared.curves import MAX_CHUNK_BYTES, chunk_of_file
from syncd.shared.layout import AVERAGED, NAME, SHA256, SLOT, Version
from syncd.shared.manifest import MAX_MANIFEST_BYTES, Blob, parse_manifest
from syncd.wire.events import Events, Mark
from syncd.wire.pacing import Pace
from syncd.wire.protocol import File
from syncd.wire.tree import Folder

#: How often a slot's hint is read where nothing tells of it: a policy is heard of this much later, at worst.
HINT_EVERY_S = 0.25
#: How often new runs and slots are looked for there, and curves anywhere: each time the last part goes out anew.
SCAN_EVERY_S = 1.0
#: How often everything is listed whatever the events, the hints and the folders' times say.
FULL_EVERY_S = 10.0
#: After a look that an event asked for, the next one is put off by so many times its processor time, and by this much
#: at least: a writer that changes files without end takes a twentieth of a core, and the newest policy is still told.
TOLD_SHARE = 20.0
TOLD_PAUSE_S = 0.005
#: Changes of hints that no event told of: after so many, events are not believed here. A single one may be a race.
MISSES = 2
#: A hint whose manifest or blob cannot be read yet (a network folder shows names late) is followed this often.
RETRIES = 20
#: So many of a slot's newest manifests are tried until a whole one with its blob is found.
CANDIDATES = 8
_HINT_BYTES = 4096


@dataclass(frozen=True)
class PolicyNews:
    """The newest policy of a slot, or of its averaged ones: the file of its manifest, and its blob."""

    path: str
    content: bytes
    blob_path: str
    blob_sha256: str
    blob_bytes: int
    is_averaged: bool = False


class _Curves:
    """Of the folder `metrics` whose path below the shared folder is `path`: what changed since it was last told. Each
    file is read once, for as long as it is the same.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed_at: int | None = None
        #: By file: inode, time and size, and what was read then.
        self._known: dict[str, tuple[tuple[int, int, int], File]] = {}
        self._told: dict[str, str] = {}

    def forget(self) -> None:
        """Tell everything again. What the files are stays known: they are not all read for each listing."""
        self._changed_at = None
        self._told.clear()

    def changes(self, metrics: Folder, *, full: bool) -> Iterator[File]:
        """What is new; `full`: whatever the folder's time says. What cannot be read hides nothing else, and is looked
        at again. Errors: OSError where the folder cannot be listed.
        """
        changed_at: int | None = metrics.changed_at()
        if changed_at == self._changed_at and not full:
            return
        self._changed_at = None
        for name, status in metrics.entries():
            if chunk_of_file(name) is None:
                continue
            try:
                news = self._news(metrics, name, status)
            except OSError:  # for its owner alone, say
                changed_at = None
                continue
            if news is not None:
                yield news
        self._changed_at = changed_at

    def _news(self, metrics: Folder, name: str, status: os.stat_result) -> File | None:
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._known.get(name)
        if known is None or known[0] != stamp:
            content = metrics.read(name, MAX_CHUNK_BYTES + 1)
            found = File(path=f"{self._path}/{name}", bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            known = self._known[name] = (stamp, found)
        news = known[1]
        if news.bytes > MAX_CHUNK_BYTES or self._told.get(name) == news.sha256:
            return None
        self._told[name] = news.sha256
        return news


@dataclass
class _Slot:
    parts: tuple[str, ...]
    hint: bytes = b""
    retries: int = 0
    version: Version | None = None
    curves: _Curves = field(init=False)

    def __post_init__(self) -> None:
        self.curves = _Curves(f"{self.path}/metrics")

    @property
    def path(self) -> str:
        return "/".join(self.parts)

    def forget(self) -> None:
        """Nothing was told of it."""
        self.hint, self.retries, self.version = b"", 0, None
        self.curves.forget()


@dataclass
class _Told:
    """What events say has changed: slots' hints, slots' curves, which folders there are; or that some were lost."""

    hints: set[tuple[str, ...]] = field(default_factory=set)
    curves: set[tuple[str, ...]] = field(default_factory=set)
    folders: bool = False
    lost: bool = False

    def note(self, mark: Mark | None, name: str) -> None:
        """One event, as `Events.read` tells it; kinds are "above" (all above the slots), "slot" and "metrics"."""
        match mark:
            case None:
                self.lost = True
            case (_, "above") if name == LIVE_FILE or name.startswith("."):
                pass  # who watches, renewed every few seconds: no folder of ours
            case (_, "above"):
                self.folders = True
            case (parts, "slot") if name == "LATEST.json":
                self.hints.add(parts)
            case (parts, "metrics") if name and not name.startswith("."):
                self.curves.add(parts)
            case _ if name in {"", "metrics", AVERAGED}:
                self.folders = True


class Feed:
    """Tells what is new, once. Errors of its methods: none; what cannot be read now is told later.

    No folder is held open between two looks: a shared folder may have more slots than a process may have descriptors,
    and a slot's folder that was deleted and made again (or put back from a copy) is another one.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic, events: Events | None = None) -> None:
        self._root = root
        self._clock = clock
        self._events = Events() if events is None else events
        self._slots: dict[tuple[str, ...], _Slot] = {}
        self._hints, self._scan, self._full = Pace(HINT_EVERY_S), Pace(SCAN_EVERY_S), Pace(FULL_EVERY_S)
        self._told = _Told()
        self._is_told = self._was_rung = False
        self._misses = 0
        self._curved: set[tuple[str, ...]] = set()
        self._curves_from = self.quiet_until = 0.0
        self._spent_s = self._step_at = 0.0

    def close(self) -> None:
        """Watch nothing any more."""
        self._events.close()

    @property
    def polls_because(self) -> str:
        """Why it looks again and again; "" where it is told of changes."""
        return "" if self._is_told else self._events.why or "no runs there yet"

    def forget(self) -> None:
        """Tell everything again."""
        for slot in self._slots.values():
            slot.forget()
        self._hints.next_at = self._scan.next_at = self._full.next_at = 0.0

    def bell(self) -> int:
        """The descriptor that becomes readable when something has changed (call `ring` then); -1: none."""
        return self._events.fd

    def ring(self) -> None:
        """`bell` was readable: `changes` is worth its while at `quiet_until`, and `bell` nothing before."""
        self._was_rung = True

    def next_at(self) -> float:
        """When `changes` is worth its while again, unless `bell` rings before (monotonic s)."""
        due = min(self._hints.next_at, self._scan.next_at, self._curves_from if self._curved else math.inf)
        return min(due, self.quiet_until) if self._was_rung else due

    def changes(self) -> Iterator[PolicyNews | File | None]:
        """What is new since the last call: the newest policy of each changed slot first, then curves.

        None: so far there is nothing more, and the look goes on; a large folder on a network's disk takes minutes. Take
        all of one look before the next one begins, and before `forget`.
        """
        now, self._spent_s = self._clock(), 0.0
        look = self._look(now)
        while True:
            self._step_at = time.thread_time()
            try:
                news = next(look)
            except StopIteration:
                break
            finally:
                self._spent_s = self._cost_s()
            yield news
        self.quiet_until = now + max(TOLD_PAUSE_S, TOLD_SHARE * self._spent_s)

    def _cost_s(self) -> float:
        """The processor time that this look has taken, without what the caller did between its steps."""
        return self._spent_s + time.thread_time() - self._step_at

    def _look(self, now: float) -> Iterator[PolicyNews | File | None]:
        self._read_events()
        told, self._told, self._was_rung = self._told, _Told(), False
        full = told.lost or now >= self._full.next_at
        scan = full or told.folders or now >= self._scan.next_at
        if scan:
            with (self._full if full else self._scan).looking(now, self._cost_s):
                yield from self._find_slots()
            self._scan.next_at = max(self._scan.next_at, now + SCAN_EVERY_S)
        for slot in (self._slots[parts] for parts in told.hints if parts in self._slots):
            slot.retries = RETRIES
        polls = scan or now >= self._hints.next_at
        if polls:
            with self._hints.looking(now, self._cost_s):
                found = yield from self._hinted(self._slots.values(), told, full=full)
        else:
            found = yield from self._hinted([self._slots[parts] for parts in told.hints if parts in self._slots], told)
        for slot in found:
            yield self._newer(slot)
        self._curved |= told.curves
        if scan or now >= self._curves_from:
            curved, self._curved, self._curves_from = self._curved, set(), now + SCAN_EVERY_S
            for parts, slot in list(self._slots.items()):
                if scan or parts in curved:
                    yield None
                    yield from self._new_curves(slot, full=full)
        if self._is_told and not any(slot.retries for slot in self._slots.values()):
            self._hints.next_at = self._scan.next_at = self._full.next_at
        elif not polls:
            self._hints.next_at = min(self._hints.next_at, now + HINT_EVERY_S)

    def _read_events(self) -> None:
        for mark, name in self._events.read():
            self._told.note(mark, name)

    def _find_slots(self) -> Iterator[None]:
        found: set[tuple[str, ...]] = set()
        self._is_told = False
        with self._events.renewed() as watch, contextlib.suppress(OSError), Folder.root(self._root) as root:
            watch(root, ((), "above"))
            with root.folder("v1") as top, top.folder("runs") as runs:
                watch(top, ((), "above"))
                watch(runs, ((), "above"))
                for run_id in filter(NAME.fullmatch, runs.names()):
                    with contextlib.suppress(OSError), runs.folder(run_id) as run:
                        watch(run, ((), "above"))
                        for name in filter(SLOT.fullmatch, run.names()):
                            found |= self._find_slot(watch, run, ("v1", "runs", run_id, name))
                            yield
            self._is_told = not self._events.why
        for parts in set(self._slots) - found:
            del self._slots[parts]

    def _find_slot(
        self, watch: Callable[[Folder, Mark], None], run: Folder, parts: tuple[str, ...]
    ) -> set[tuple[str, ...]]:
        """Note the slot, and the folder of its averaged policies where it has one, and watch them."""
        found, averaged = {parts}, (*parts, AVERAGED)
        with contextlib.suppress(OSError), run.folder(parts[-1]) as slot:
            if not self._events.why:
                watch(slot, (parts, "slot"))
            with contextlib.suppress(OSError), slot.folder(AVERAGED) as inner:  # where there is none: the slot tells
                found.add(averaged)
                if not self._events.why:
                    watch(inner, (averaged, "slot"))
            if not self._events.why:
                with slot.folder("metrics") as metrics:
                    watch(metrics, (parts, "metrics"))
        for each in found:
            self._slots.setdefault(each, _Slot(each))
        return found

    def _open(self, slot: _Slot, *inner: str) -> Folder:
        """The slot's folder, or one in it. Errors: OSError."""
        with Folder.root(self._root) as root:
            return root.down((*slot.parts, *inner))

    def _hinted(self, slots: Iterable[_Slot], told: _Told, *, full: bool = False) -> Generator[None, None, list[_Slot]]:
        """Those of `slots` whose hint changed or is followed; `full`: all of them."""
        slots = list(slots)
        if not slots:
            return []
        found: list[_Slot] = []
        before = {slot.parts: slot.hint for slot in slots if slot.hint}
        try:
            with Folder.root(self._root) as root, root.down(("v1", "runs")) as runs:
                for slot in slots:
                    found += [slot] if self._hint_changed(runs, slot) or full else []
                    yield
        except OSError:
            return []
        if self._is_told and not (told.folders or told.lost):
            self._count_misses({slot.parts for slot in slots if before.get(slot.parts, slot.hint) != slot.hint}, told)
        return found

    def _count_misses(self, changed: set[tuple[str, ...]], told: _Told) -> None:
        """Whether events told of what `changed`; where they do not, looking again and again must do."""
        silent = changed - told.hints
        if silent:
            self._read_events()  # it may have been renamed into its place while we looked
            self._was_rung = True
            silent -= self._told.hints
        self._misses += len(silent)
        if self._misses >= MISSES:
            self._events.give_up("events did not tell of all changes")
            self._is_told = False

    @staticmethod
    def _hint_changed(runs: Folder, slot: _Slot) -> bool:
        try:
            with runs.down(slot.parts[2:]) as folder:
                hint = folder.read("LATEST.json", _HINT_BYTES)
        except OSError:
            slot.retries = max(0, slot.retries - 1)
            return False
        if hint != slot.hint:
            slot.hint, slot.retries = hint, RETRIES
        elif slot.retries:
            slot.retries -= 1
        return slot.retries > 0

    def _newer(self, slot: _Slot) -> PolicyNews | None:
        """The slot's newest whole policy if it was not told yet."""
        try:
            with self._open(slot, "manifests") as manifests:
                versions = sorted(filter(None, map(Version.of_file, manifests.names())), reverse=True)
                for version in versions[:CANDIDATES]:
                    told = slot.version is not None and version <= slot.version
                    news = None if told else self._policy(slot, manifests, version)
                    if told or news is not None:
                        slot.version = max(version, slot.version or version)
                        if version == versions[0]:
                            slot.retries = 0
                        return news
        except OSError:
            return None  # looked at again
        return None

    def _policy(self, slot: _Slot, manifests: Folder, version: Version) -> PolicyNews | None:
        try:
            content = manifests.read(version.file_name, MAX_MANIFEST_BYTES + 1)
            manifest = parse_manifest(content)
        except (OSError, DamagedPolicyError):
            return None
        sha256 = manifest.blob.sha256
        if (manifest.run_id, str(manifest.slot)) != slot.parts[2:4] or manifest.version != version:
            return None
        if not all(SHA256.fullmatch(blob.sha256) and self._has_blob(slot, blob) for blob in manifest.blobs):
            return None
        return PolicyNews(
            path=f"{slot.path}/manifests/{version.file_name}",
            content=content,
            blob_path=f"{slot.path}/blobs/{sha256[:2]}/{sha256}",
            blob_sha256=sha256,
            blob_bytes=manifest.blob.bytes,
            is_averaged=slot.parts[-1] == AVERAGED,
        )

    def _has_blob(self, slot: _Slot, blob: Blob) -> bool:
        """Whether the blob can be opened, and has all its bytes. Its content is the reader's to judge."""
        sha256 = blob.sha256
        try:
            with self._open(slot, "blobs", sha256[:2]) as folder, open(folder.open(sha256), "rb") as file:
                return os.fstat(file.fileno()).st_size == blob.bytes
        except OSError:
            return False

    def _new_curves(self, slot: _Slot, *, full: bool) -> Iterator[File]:
        with contextlib.suppress(OSError), self._open(slot, "metrics") as metrics:  # looked at again
            yield from slot.curves.changes(metrics, full=full)
