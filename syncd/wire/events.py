"""What Linux itself tells of changes in folders (inotify): one descriptor to poll on, and no thread.

Only file systems of this machine tell all: a network folder is silent about what other machines do, and is polled.
watchdog, which the laptop's side uses, is not for a server: each has to do with little memory beside many others, and
watchdog takes two threads for each watched folder, or a watch for each of a slot's 256 folders of blobs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from syncd.wire.tree import Folder

#: All that write to file systems of these names are on this machine, or pass through it (an NFS server's own disk).
#: What is not named here is polled.
LOCAL_TYPES = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs"}
)
#: An account has some 8,192 watches at least (older kernels), for all connections to it, and each takes a kilobyte.
MOST_WATCHES = 1000
#: <linux/inotify.h>
_CREATED, _MOVED_FROM, _MOVED_TO, _DELETED = 0x100, 0x40, 0x80, 0x200
_SELF_DELETED, _SELF_MOVED = 0x400, 0x800
_OVERFLOW, _IGNORED, _ONLY_FOLDERS = 0x4000, 0x8000, 0x01000000
_MASK = _CREATED | _MOVED_FROM | _MOVED_TO | _DELETED | _SELF_DELETED | _SELF_MOVED | _ONLY_FOLDERS
#: What a folder is watched as: components of its path, and which kind of folder it is.
Mark = tuple[tuple[str, ...], str]
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


def type_of(folder: Folder, proc: Path = Path("/proc/self")) -> str:
    """The type of the file system that `folder` lies on, as mount(8) calls it; "unknown" where that cannot be seen."""
    try:
        facts = (proc / "fdinfo" / str(folder.fileno())).read_text(encoding="utf-8")
        mount = next(line.split()[1] for line in facts.splitlines() if line.startswith("mnt_id:"))
        for line in (proc / "mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            if before.split(maxsplit=1)[0] == mount:
                return after.split(maxsplit=1)[0]
    except (OSError, StopIteration, IndexError):
        pass
    return "unknown"


class Events:
    """Changes in the folders that are watched, by whatever `mark` each was watched with. Errors of its methods: none.

    `why` is "" as long as all that was to be watched is, else a few words on what is not told: the caller polls then.
    """

    def __init__(self, most: int = MOST_WATCHES, type_of: Callable[[Folder], str] = type_of) -> None:
        self.why = ""
        self._most, self._type_of = most, type_of
        self._marks: dict[int, Mark] = {}
        self._kept: dict[int, Mark] = {}
        self._types: dict[int, str] = {}
        self.fd = -1
        try:
            # Looked up by name, and absent elsewhere than on Linux.
            libc = ctypes.CDLL(None, use_errno=True)
            self._add, self._remove = libc.inotify_add_watch, libc.inotify_rm_watch
            self.fd = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        except AttributeError:
            self.why = "this system has no inotify"
        except OSError as error:  # EMFILE: the account's limit of 128 such descriptors
            self.why = f"inotify: {error.strerror}"

    def close(self) -> None:
        """Watch nothing any more. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def give_up(self, why: str) -> None:
        """Watch nothing from now on, for this reason."""
        self.close()
        self.why = why

    @contextlib.contextmanager
    def renewed(self) -> Iterator[Callable[[Folder, Mark], None]]:
        """Yields `watch(folder, mark)`; whatever it is not called for is no longer watched at the end.

        Watch a folder before its names are read: what comes in between is told then.
        """
        self._kept = {}
        if self.fd >= 0:
            self.why = ""
        yield self._watch
        for number in set(self._marks) - set(self._kept):
            self._remove(self.fd, number)  # an error: the kernel has removed it already
        self._marks = self._kept

    def _watch(self, folder: Folder, mark: Mark) -> None:
        if self.fd < 0 or self.why:
            return
        try:
            self.why = self._unfit(folder)
            if not self.why and len(self._kept) >= self._most:
                self.why = f"more than {self._most} folders"
            if not self.why:
                # By its descriptor: this very folder, whatever its path means by now.
                path = os.fsencode(f"/proc/self/fd/{folder.fileno()}")
                self._kept[_checked(self._add(self.fd, path, ctypes.c_uint32(_MASK)))] = mark
        except OSError as error:  # ENOSPC: the account's limit of watches
            self.why = f"inotify: {error.strerror}"

    def _unfit(self, folder: Folder) -> str:
        device = os.fstat(folder.fileno()).st_dev
        if device not in self._types:
            self._types[device] = self._type_of(folder)
        name = self._types[device]
        return "" if name in LOCAL_TYPES else f"a file system of type {name}"

    def read(self) -> list[tuple[Mark | None, str]]:
        """What has changed since the last call, as (mark, name in that folder); the name is "" for the folder itself.

        (None, ""): something was not told.
        """
        found: list[tuple[Mark | None, str]] = []
        while self.fd >= 0:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except OSError:  # BlockingIOError: that was all
                break
            found += self._parsed(data)
        return found

    def _parsed(self, data: bytes) -> Iterator[tuple[Mark | None, str]]:
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            if mask & _OVERFLOW:
                yield None, ""
            elif number in self._marks:
                yield self._marks[number], name
                if mask & _IGNORED:
                    del self._marks[number]


def _checked(result: int) -> int:
    """Errors: OSError of what the C library said."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
