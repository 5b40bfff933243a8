"""What is on offer below one `$SHARED`, and what of it changed since it was last told.

Network folders tell nobody of changes, and cache what `stat` says for seconds: so `LATEST.json` is opened and read,
again and again. Each kind of look has a least interval; one that costs much is taken less often.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from syncd.errors import DamagedPolicyError
from syncd.shared.curves import MAX_CHUNK_BYTES, chunk_of_file
from syncd.shared.layout import NAME, SHA256, SLOT
from syncd.shared.manifest import MAX_MANIFEST_BYTES, Manifest, Version, parse_manifest
from syncd.wire.tree import Folder

#: How often a slot's hint is read. A reader on the same disk hears of a policy this much later, at worst.
HINT_EVERY_S = 0.25
#: How often new runs, slots, and curves are looked for.
SCAN_EVERY_S = 1.0
#: How often everything is listed whatever the hints and the folders' times say.
FULL_EVERY_S = 10.0
#: A look waits for this many times the processor time that the last one took, but no longer than this many intervals.
IDLE_SHARE = 500.0
MOST_INTERVALS = 4.0
#: A hint whose manifest or blob cannot be read yet (a network folder shows names late) is followed this often.
RETRIES = 20
#: So many of a slot's newest manifests are tried until a whole one with its blob is found.
CANDIDATES = 8
_HINT_BYTES = 4096


class Pace:
    """When a repeated look is due: `least_s` after the last, or later where it costs much."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self.next_at = 0.0

    @contextlib.contextmanager
    def looking(self, now: float) -> Iterator[None]:
        """One look, at `now` (monotonic s); sets `next_at`."""
        began = time.thread_time()
        try:
            yield
        finally:
            cost_s = time.thread_time() - began
            self.next_at = now + min(max(self._least_s, IDLE_SHARE * cost_s), MOST_INTERVALS * self._least_s)


@dataclass(frozen=True)
class PolicyNews:
    """The newest policy of a slot: the file of its manifest, and its blob."""

    path: str
    content: bytes
    blob_path: str
    blob_sha256: str
    blob_bytes: int


@dataclass(frozen=True)
class CurveNews:
    """One file of metrics, as it was when it was read."""

    path: str
    bytes: int
    sha256: str


@dataclass
class _Slot:
    parts: tuple[str, ...]
    hint: bytes = b""
    retries: int = 0
    version: Version | None = None
    curves_at: int | None = None
    curves: dict[str, tuple[tuple[int, int, int], str]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return "/".join(self.parts)


class Feed:
    """Tells what is new, once. Errors of its methods: none; what cannot be read now is told later.

    No folder is held open between two looks: a shared folder may have more slots than a process may have descriptors,
    and a slot's folder that was deleted and made again (or put back from a copy) is another one.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._slots: dict[tuple[str, ...], _Slot] = {}
        self._hints, self._scan, self._full = Pace(HINT_EVERY_S), Pace(SCAN_EVERY_S), Pace(FULL_EVERY_S)

    def forget(self) -> None:
        """Tell everything again."""
        self._slots = {}
        self._hints.next_at = self._scan.next_at = self._full.next_at = 0.0

    def next_at(self) -> float:
        """When `changes` is worth its while again (monotonic s)."""
        return min(self._hints.next_at, self._scan.next_at)

    def changes(self) -> Iterator[PolicyNews | CurveNews]:
        """What is new since the last call: the newest policy of each changed slot first, then curves."""
        now = self._clock()
        full = now >= self._full.next_at
        scan = full or now >= self._scan.next_at
        if scan:
            with (self._full if full else self._scan).looking(now):
                self._find_slots()
            self._scan.next_at = max(self._scan.next_at, now + SCAN_EVERY_S)
        if scan or now >= self._hints.next_at:
            with self._hints.looking(now):
                found = self._hinted(full=full)
        else:
            found = []
        for slot in found:
            if (news := self._newer(slot)) is not None:
                yield news
        if scan:
            for slot in list(self._slots.values()):
                yield from self._new_curves(slot, full=full)

    def _find_slots(self) -> None:
        found: set[tuple[str, ...]] = set()
        with contextlib.suppress(OSError), Folder.root(self._root) as root, root.down(("v1", "runs")) as runs:
            for run_id in filter(NAME.fullmatch, runs.names()):
                with contextlib.suppress(OSError), runs.folder(run_id) as run:
                    for name in filter(SLOT.fullmatch, run.names()):
                        parts: tuple[str, ...] = ("v1", "runs", run_id, name)
                        found.add(parts)
                        self._slots.setdefault(parts, _Slot(parts))
        for parts in set(self._slots) - found:
            del self._slots[parts]

    def _open(self, slot: _Slot, *inner: str) -> Folder:
        """The slot's folder, or one in it. Errors: OSError."""
        with Folder.root(self._root) as root:
            return root.down((*slot.parts, *inner))

    def _hinted(self, *, full: bool) -> list[_Slot]:
        """The slots whose hint changed or is followed; `full`: all of them."""
        try:
            with Folder.root(self._root) as root, root.down(("v1", "runs")) as runs:
                return [slot for slot in self._slots.values() if self._hint_changed(runs, slot) or full]
        except OSError:
            return []

    @staticmethod
    def _hint_changed(runs: Folder, slot: _Slot) -> bool:
        try:
            with runs.down(slot.parts[2:]) as folder:
                hint = folder.read("LATEST.json", _HINT_BYTES)
        except OSError:
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
        if (manifest.run_id, str(manifest.slot)) != slot.parts[2:] or manifest.version != version:
            return None
        if not SHA256.fullmatch(sha256) or not self._has_blob(slot, manifest):
            return None
        return PolicyNews(
            path=f"{slot.path}/manifests/{version.file_name}",
            content=content,
            blob_path=f"{slot.path}/blobs/{sha256[:2]}/{sha256}",
            blob_sha256=sha256,
            blob_bytes=manifest.blob.bytes,
        )

    def _has_blob(self, slot: _Slot, manifest: Manifest) -> bool:
        """Whether the blob can be opened. Its content is the reader's to judge."""
        sha256 = manifest.blob.sha256
        try:
            with self._open(slot, "blobs", sha256[:2]) as folder, open(folder.open(sha256), "rb"):
                return True
        except OSError:
            return False

    def _new_curves(self, slot: _Slot, *, full: bool) -> Iterator[CurveNews]:
        try:
            with self._open(slot, "metrics") as metrics:
                changed_at = metrics.changed_at()
                if changed_at == slot.curves_at and not full:
                    return
                for name, status in metrics.entries():
                    stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
                    known = slot.curves.get(name)
                    if chunk_of_file(name) is None or (known is not None and known[0] == stamp):
                        continue
                    content = metrics.read(name, MAX_CHUNK_BYTES + 1)
                    sha256 = hashlib.sha256(content).hexdigest()
                    slot.curves[name] = (stamp, sha256)
                    if len(content) <= MAX_CHUNK_BYTES and (known is None or known[1] != sha256):
                        yield CurveNews(f"{slot.path}/metrics/{name}", len(content), sha256)
                slot.curves_at = changed_at
        except OSError:
            slot.curves_at = None
