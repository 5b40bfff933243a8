"""A folder among the machine's temporary files, as long as its process lives, and those that killed ones left there.

A process holds a lock on its folder: the kernel drops it with the process, however that ends. So who makes one first
removes those of the same kind and user that are a day old and whose lock can be had.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

#: A younger one may belong to somebody who is about to lock it.
ABANDONED_S = 86_400.0


class HeldFolder:
    """A new folder in `where` (None: the usual place), whose name begins with `prefix`. Errors: OSError."""

    def __init__(self, prefix: str, where: Path | None = None) -> None:
        _sweep(where or Path(tempfile.gettempdir()), prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        self._handle: int | None = None
        with contextlib.suppress(OSError):  # where there are no locks, what is left stays
            self._handle = _locked(self.path)

    def remove(self) -> None:
        """Remove it. May be called twice; never raises."""
        shutil.rmtree(self.path, ignore_errors=True)
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _sweep(where: Path, prefix: str) -> None:
    for folder in where.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if found.st_uid == os.getuid() and found.st_mtime < time.time() - ABANDONED_S:
                handle = _locked(folder)
                shutil.rmtree(folder, ignore_errors=True)
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
