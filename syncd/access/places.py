"""How many connections of one contributor this machine serves at once: each holds a place, which is a locked file.

A place goes back when its process ends, however that ends. The files lie in a folder that is the account's alone, on
this machine's own disk where there is one (`$XDG_RUNTIME_DIR`), else below its state folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from anchorleg.places import own_folder
from syncd.errors import StorageError

#: One laptop needs one; a second one, a `syncd pull` by hand and a doctor find a place, too.
CONNECTIONS = 4
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def take(who: str, shared: Path, environ: Mapping[str, str] = os.environ) -> int | None:
    """Hold one of the places of `who` as long as the returned descriptor is open; None: all are taken.

    Errors: StorageError where no file can be locked here.
    """
    folder = _folder(environ) / hashlib.sha256(os.fsencode(os.path.realpath(shared))).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(CONNECTIONS):
            fd = os.open(folder / f"{who}.connection.{number}", _OPEN, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
            except BaseException:
                os.close(fd)
                raise
            else:
                return fd
    except OSError as error:
        raise StorageError("gate.no-place", path=folder, why=error.strerror) from error
    return None


def _folder(environ: Mapping[str, str]) -> Path:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        try:
            status = os.stat(runtime)
        except OSError:
            status = None
        if status is not None and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            return Path(runtime) / "anchorleg" / "gate"
    return own_folder("state", environ) / "gate"
