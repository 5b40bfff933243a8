"""What is on offer below one `$SHARED`, and what changed since it was last told: a paced poll of what is known.

Who may serve is not who may read: a link that one member of a group plants must not show another member's files. So
reading goes component by component, no link is followed, and nothing but its own kinds is opened.

Network folders tell nobody of changes, and cache what `stat` says for seconds: so each slot's `LATEST.json` is opened
and read, about once a second while a client is connected, and less often where a look takes long.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from syncd.errors import DamagedPolicyError
from syncd.shared.curves import MAX_CHUNK_BYTES, chunk_of_file
from syncd.shared.layout import AVERAGED, NAME, SAVED_FILE, SHA256, SLOT, Version
from syncd.shared.manifest import MAX_MANIFEST_BYTES, Blob, parse_manifest
from syncd.wire.protocol import File

#: What a client may see. Of the inboxes, the agents that their contributors let be watched; and its own verdicts, by
#: other messages.
READABLE = ("v1", "runs")
_INBOXES, _SHOWN = ("v1", "inbox"), "live"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: NONBLOCK: a fifo in the way must not stop the server.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """An open folder. Names are single components. Errors of every method: OSError (FileNotFoundError: not there)."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def root(cls, path: Path) -> Folder:
        """The folder at `path`, which may be a link: it is the administrator's."""
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fileno(self) -> int:
        """Its descriptor; -1 once it is closed."""
        return self._fd

    def folder(self, name: str) -> Folder:
        """A folder in it; a link is refused."""
        return Folder(os.open(_component(name), _FOLDER_FLAGS, dir_fd=self._fd))

    def down(self, names: tuple[str, ...]) -> Folder:
        """The folder at the end of `names`."""
        here = Folder(os.dup(self._fd))
        for name in names:
            with here:
                here = here.folder(name)
        return here

    def open(self, name: str) -> int:
        """A descriptor of a regular file in it, to be closed by the caller."""
        fd = os.open(_component(name), _FILE_FLAGS, dir_fd=self._fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, "not a regular file", name)
        return fd

    def read(self, name: str, most: int) -> bytes:
        """The content of a file, at most `most` bytes of it."""
        fd = self.open(name)
        with open(fd, "rb") as file:
            return file.read(most)

    def names(self) -> list[str]:
        """What is in it, sorted."""
        return sorted(os.listdir(self._fd))

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Its regular files with their status, links left out."""
        for name in self.names():
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield name, status

    def changed_at(self) -> int:
        """When a name in it came, went or was replaced (ns). A network folder may say so seconds late."""
        return os.fstat(self._fd).st_mtime_ns


def _component(name: str) -> str:
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise FileNotFoundError(errno.ENOENT, "not a name", name)
    return name


def open_file(root: Path, path: str) -> int:
    """A descriptor of the file at `path` (`v1/runs/…`, `v1/inbox/<who>/live/…`) below `root`; where this is a run
    folder, of a checkpoint's (`syncd.shared.layout`).

    Errors: FileNotFoundError, OSError.
    """
    parts = tuple(path.split("/"))
    is_shown = parts[:2] == _INBOXES and parts[3:4] == (_SHOWN,)
    is_offered = parts[: len(READABLE)] == READABLE or is_shown or SAVED_FILE.fullmatch(path)
    if not is_offered or len(parts) == len(READABLE):
        raise FileNotFoundError(errno.ENOENT, "not offered", path)
    with Folder.root(root) as top, top.down(parts[:-1]) as folder:
        return folder.open(parts[-1])


#: A policy is heard of this much later, at worst, where a look is quick.
LOOK_EVERY_S = 1.0
#: How often everything is read whatever the hints and the folders' times say.
FULL_EVERY_S = 10.0
#: A hint whose manifest or blob cannot be read yet (a network folder shows names late) is followed this often.
RETRIES = 20
#: So many of a slot's newest manifests are tried until a whole one with its blob is found.
CANDIDATES = 8
_HINT_BYTES = 4096
#: A look waits this many times as long as the last one took: a large folder of a network is spared.
IDLE_SHARE = 10.0
MOST_PAUSE_S = 30.0


class Pace:
    """When a repeated look is due: `least_s` after the last, or `IDLE_SHARE` times as long as that took, to 30 s."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self.next_at = 0.0

    def took(self, now: float, spent_s: float) -> None:
        """A look has ended `now`, that took so long."""
        self.next_at = now + min(max(self._least_s, IDLE_SHARE * spent_s), MOST_PAUSE_S)


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


class Feed:
    """Tells what is new, once. Errors of its methods: none; what cannot be read now is told later.

    No folder is held open between two looks: a shared folder may have more slots than a process may have descriptors,
    and a slot's folder that was deleted and made again (or put back from a copy) is another one.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._slots: dict[tuple[str, ...], _Slot] = {}
        self._pace = Pace(LOOK_EVERY_S)
        self._full_at = 0.0

    @property
    def next_at(self) -> float:
        """When the next look is due."""
        return self._pace.next_at

    def forget(self) -> None:
        """Tell everything again."""
        for slot in self._slots.values():
            slot.forget()
        self._pace.next_at = self._full_at = 0.0

    def changes(self) -> Iterator[File | None]:
        """One look: what is new, policies first; None where there is nothing yet to say, so that the caller may do
        something else between two steps.
        """
        now, spent_s = self._clock(), 0.0
        is_full = now >= self._full_at
        if is_full:
            self._full_at = now + FULL_EVERY_S
        steps = self._look(is_full)
        while True:
            before = self._clock()
            try:
                news = next(steps)
            except StopIteration:
                break
            finally:
                spent_s += self._clock() - before
            yield news
        self._pace.took(self._clock(), spent_s)

    def _look(self, is_full: bool) -> Iterator[File | None]:
        yield from self._find_slots()
        for slot in list(self._slots.values()):
            yield self._newer(slot) if self._is_due(slot) or is_full else None
        for slot in list(self._slots.values()):
            with contextlib.suppress(OSError), self._open(slot, "metrics") as metrics:
                yield from slot.curves.changes(metrics, full=is_full)
            yield None

    def _find_slots(self) -> Iterator[None]:
        found: set[tuple[str, ...]] = set()
        with contextlib.suppress(OSError), Folder.root(self._root) as root, root.down(("v1", "runs")) as runs:
            for run_id in filter(NAME.fullmatch, runs.names()):
                with contextlib.suppress(OSError), runs.folder(run_id) as run:
                    for name in filter(SLOT.fullmatch, run.names()):
                        found |= self._find_slot(run, ("v1", "runs", run_id, name))
                        yield
        for parts in set(self._slots) - found:
            del self._slots[parts]

    def _find_slot(self, run: Folder, parts: tuple[str, ...]) -> set[tuple[str, ...]]:
        """Note the slot, and the folder of its averaged policies where it has one."""
        found = {parts}
        with contextlib.suppress(OSError), run.down((parts[-1], AVERAGED)):
            found.add((*parts, AVERAGED))
        for each in found:
            self._slots.setdefault(each, _Slot(each))
        return found

    def _open(self, slot: _Slot, *inner: str) -> Folder:
        """The slot's folder, or one in it. Errors: OSError."""
        with Folder.root(self._root) as root:
            return root.down((*slot.parts, *inner))

    def _is_due(self, slot: _Slot) -> bool:
        """Whether its hint has changed, or is followed until the policy can be read."""
        try:
            with self._open(slot) as folder:
                hint = folder.read("LATEST.json", _HINT_BYTES)
        except OSError:
            hint = slot.hint
        if hint != slot.hint:
            slot.hint, slot.retries = hint, RETRIES
        elif slot.retries:
            slot.retries -= 1
        return slot.retries > 0

    def _newer(self, slot: _Slot) -> File | None:
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

    def _policy(self, slot: _Slot, manifests: Folder, version: Version) -> File | None:
        try:
            content = manifests.read(version.file_name, MAX_MANIFEST_BYTES + 1)
            manifest = parse_manifest(content)
        except (OSError, DamagedPolicyError):
            return None
        if (manifest.run_id, str(manifest.slot)) != slot.parts[2:4] or manifest.version != version:
            return None
        if not all(SHA256.fullmatch(blob.sha256) and self._has_blob(slot, blob) for blob in manifest.blobs):
            return None
        path = f"{slot.path}/manifests/{version.file_name}"
        return File(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

    def _has_blob(self, slot: _Slot, blob: Blob) -> bool:
        """Whether the blob can be opened, and has all its bytes. Its content is the reader's to judge."""
        sha256 = blob.sha256
        try:
            with self._open(slot, "blobs", sha256[:2]) as folder, open(folder.open(sha256), "rb") as file:
                return os.fstat(file.fileno()).st_size == blob.bytes
        except OSError:
            return False
