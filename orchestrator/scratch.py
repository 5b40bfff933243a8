"""A job's folder on its node (`ANCHORLEG_SCRATCH`), and those that killed jobs left there. Standard library only.

A shim holds a lock on its folder for as long as it lives: the kernel drops it with the process, however that ends. So
each shim first removes the folders of its user whose lock it gets. A folder that several machines share may keep each
machine's locks to itself, hence the machine in the name; where there are no locks, what was left stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch_folder(base: Path, token: str) -> Iterator[Path]:
    """A new folder in `base` for the job of `token`, removed at the end. Errors: OSError where it cannot be made."""
    machine = os.uname().nodename.partition(".")[0]
    remove_left(base, machine)
    folder = base / f"anchorleg-{token}-{machine}-{os.urandom(4).hex()}"
    unlocked = folder.with_name(f".{folder.name}")  # a name at which nobody looks
    unlocked.mkdir(mode=0o700)
    handle = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)  # the program does not inherit it
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unlocked.rename(folder)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(handle)


def remove_left(base: Path, machine: str) -> None:
    """Remove what jobs of ours left in `base` that were killed on this machine. Raises nothing of the disk's."""
    ours = re.compile(rf"anchorleg-s\d+-a\d+-[0-9a-f]{{8}}-{re.escape(machine)}-[0-9a-f]{{8}}")
    with contextlib.suppress(OSError):
        for name in filter(ours.fullmatch, os.listdir(base)):
            with contextlib.suppress(OSError):
                _remove_unlocked(base / name)


def _remove_unlocked(folder: Path) -> None:
    """Errors: OSError where its job lives, or nothing can be locked there."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid == os.getuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        import shutil  # noqa: PLC0415 - as all that most jobs can do without

        shutil.rmtree(folder, ignore_errors=True)
