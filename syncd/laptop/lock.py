"""One client at a time for each mirror, and who it is.

flock, because DIR is on this machine's own disk: it goes away with its process, however that ends. `state/lock` is
never deleted: a second process could lock a file that has no name any more.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict

from syncd.errors import ConfigError, StorageError
from syncd.shared.layout import read_hint

#: `syncd status` asks for the lock, for an instant; a client that meets it asks again for so long.
PATIENCE_S = 1.0
_LOOK_S = 0.02


class Holder(BaseModel):
    """Who keeps the mirror: process id, since when (unix seconds), and which verb."""

    model_config = ConfigDict(frozen=True)

    pid: int
    since: float
    verb: str


class MirrorLock:
    """Held from `__enter__` to `__exit__`. Errors: ConfigError that names the other one; StorageError.

    With `wait` it comes for as long as the other one stays: `wait` is told so, once, and there is no error. But no
    `watch` waits for another `watch`: nothing would be left to do.
    """

    def __init__(
        self,
        folder: Path,
        verb: str,
        *,
        wait: Callable[[str], None] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.folder = folder
        self.verb = verb
        self._tell_wait, self._patience_s = wait, patience_s
        self._fd = -1

    def __enter__(self) -> Self:
        path = _lock_file(self.folder)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError("mirror.unusable", path=self.folder, why=error.strerror) from error
        try:
            self._take()
            record = Holder(pid=os.getpid(), since=time.time(), verb=self.verb)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, record.model_dump_json().encode(), 0)
        except BaseException as error:
            os.close(self._fd)
            if isinstance(error, OSError):
                raise StorageError("storage.unwritable", path=path, why=error.strerror) from error
            raise
        return self

    def _take(self) -> None:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    break
                time.sleep(_LOOK_S)
            else:
                return
        who = _read(self.folder)
        if self._tell_wait is None or (who is not None and self.verb == who.verb == "watch"):
            only_fetches = self.verb == "push" and who is not None and who.verb == "pull"
            name = _named(who)
            raise ConfigError("mirror.only-fetched" if only_fetches else "mirror.taken", folder=self.folder, by=name)
        self._tell_wait(f"{self.folder} is kept by {_named(who)} already: waiting until that one ends")
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # asleep in the kernel; a signal's exception ends it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def _named(who: Holder | None) -> str:
    return f"`syncd {who.verb}` (pid {who.pid})" if who else "another syncd"


def holder(folder: Path) -> Holder | None:
    """Who keeps this mirror now; None where nobody does."""
    try:
        fd = os.open(_lock_file(folder), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(folder) or Holder(pid=0, since=0.0, verb="watch")
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _lock_file(folder: Path) -> Path:
    return folder / "state" / "lock"


def _read(folder: Path) -> Holder | None:
    return read_hint(Holder, _lock_file(folder))
