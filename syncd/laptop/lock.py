"""One client at a time for each mirror, and who it is.

flock, because DIR is on this machine's own disk: it goes away with its process, however that ends. `state/lock` is
never deleted: a second process could lock a file that has no name any more.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from syncd.errors import ConfigError, StorageError
from syncd.shared.layout import read_hint, writing

#: `syncd status` asks for the lock, for an instant; a client that meets it asks again for so long.
PATIENCE_S = 1.0
_LOOK_S = 0.02


class Holder(BaseModel):
    """Who keeps the mirror: process id, since when (unix seconds), and which verb."""

    model_config = ConfigDict(frozen=True)

    pid: int
    since: float
    verb: str


@contextmanager
def mirror_lock(
    folder: Path, verb: str, *, wait: Callable[[str], None] | None = None, patience_s: float = PATIENCE_S
) -> Iterator[None]:
    """Keep the mirror while the block lasts. Errors: ConfigError that names the other one; StorageError.

    With `wait` it comes for as long as the other one stays: `wait` is told so, once, and there is no error. But no
    `watch` waits for another `watch`: nothing would be left to do.
    """
    path = _lock_file(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError("mirror.unusable", path=folder, why=error.strerror) from error
    try:
        with writing(path):
            _take(fd, folder, verb, wait, patience_s)
            os.ftruncate(fd, 0)
        with suppress(OSError):  # on a full disk nobody knows who it is
            os.pwrite(fd, Holder(pid=os.getpid(), since=time.time(), verb=verb).model_dump_json().encode(), 0)
        yield
    finally:
        os.close(fd)


def _take(fd: int, folder: Path, verb: str, wait: Callable[[str], None] | None, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        else:
            return
    who = _read(folder)
    name = _named(who)
    if wait is None or (who is not None and verb == who.verb == "watch"):
        only_fetches = verb == "push" and who is not None and who.verb == "pull"
        raise ConfigError("mirror.only-fetched" if only_fetches else "mirror.taken", folder=folder, by=name)
    wait(f"{folder} is kept by {name} already: waiting until that one ends")
    fcntl.flock(fd, fcntl.LOCK_EX)  # asleep in the kernel; a signal's exception ends it


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
