"""A folder among a machine's temporary files, as long as its process lives, and those that killed ones left there.

A process holds a lock on its folder: the kernel drops it with the process, however that ends. So who makes one first
removes those of its kind and user whose lock can be had. A folder that several machines share may keep each machine's
locks to itself, hence the machine in the name; where there are no locks, what was left stays.

Standard library only, and of that what costs nothing to import.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path


class HeldFolder:
    """A new folder `<kind>-<machine>-…` in `where`. `like`: a pattern of the kinds whose leavings are removed; left
    out: of this one. Errors: OSError where it cannot be made.
    """

    def __init__(self, kind: str, where: Path, like: str | None = None) -> None:
        machine = os.uname().nodename.partition(".")[0]
        _sweep(where, re.compile(rf"(?:{like or re.escape(kind)})-{re.escape(machine)}-[0-9a-f]{{8}}"))
        self.path = where / f"{kind}-{machine}-{os.urandom(4).hex()}"
        unlocked = self.path.with_name(f".{self.path.name}")  # a name at which nobody looks
        unlocked.mkdir(mode=0o700)
        self._handle: int | None = None
        with contextlib.suppress(OSError):
            self._handle = _locked(unlocked)  # what this process starts does not inherit it
        unlocked.rename(self.path)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it. May be called twice; never raises."""
        _remove(self.path)
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _sweep(where: Path, ours: re.Pattern[str]) -> None:
    """Remove what killed processes left. Raises nothing of the disk's."""
    with contextlib.suppress(OSError):
        for name in filter(ours.fullmatch, os.listdir(where)):
            with contextlib.suppress(OSError):
                handle = _locked(where / name)
                try:
                    if os.fstat(handle).st_uid == os.getuid():
                        _remove(where / name)
                finally:
                    os.close(handle)


def _locked(folder: Path) -> int:
    """What holds the lock. Errors: OSError where somebody else has it, or there are none."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
