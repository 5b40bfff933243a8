"""A log that a service manager writes for us, kept small by ourselves: launchd rotates nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
from pathlib import Path

from anchorleg.files import write_bytes

#: Some weeks of one line a policy; what is older interests nobody.
MAX_LOG_BYTES = 4 * 2**20
#: Between two looks: at one line in a few seconds it grows by kilobytes.
LOOK_S = 600.0


def is_log(fd: int) -> bool:
    """Whether `fd` is a plain file, and so somebody's log that nobody else rotates."""
    return stat.S_ISREG(os.fstat(fd).st_mode)


def shorten(fd: int, path: Path, max_bytes: int = MAX_LOG_BYTES) -> bool:
    """Where the log `path`, open for appending as `fd`, is too long: keep its end as `<path>.1` and empty it.

    Emptied, not renamed: the manager gives the same file to the next start. Errors: OSError.
    """
    if os.fstat(fd).st_size <= max_bytes:
        return False
    with open(path, "rb") as file:
        file.seek(-max_bytes, os.SEEK_END)
        write_bytes(path.with_name(f"{path.name}.1"), file.read())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)  # else a hole of the old length
    os.ftruncate(fd, 0)
    return True


def keep_short(fd: int, path: Path) -> None:
    """Look now and then, in the background, as long as the process lives. Trouble with the log is no trouble."""

    def look() -> None:
        stop = threading.Event()
        while True:
            try:
                shorten(fd, path)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.write(fd, f"the log cannot be shortened: {error.strerror}\n".encode())
            stop.wait(LOOK_S)

    threading.Thread(target=look, name="log", daemon=True).start()
