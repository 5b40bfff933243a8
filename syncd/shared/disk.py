"""What disks refuse, as errors of ours; and what of a disk stays free, whatever others send."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anchorleg.output import ReaderGoneError
from syncd.errors import StorageError

#: Checkpoints and people at the machine need it more. On a small disk, this share of it.
FREE_BYTES = 1024**3
FREE_SHARE = 0.02


def is_nearly_full(folder: Path, added_bytes: int = 0) -> bool:
    """Whether the disk of `folder` would have too little left after so many bytes more. Errors: OSError."""
    told = os.statvfs(folder)
    left = told.f_bavail * told.f_frsize - added_bytes
    return left < min(FREE_BYTES, FREE_SHARE * told.f_blocks * told.f_frsize)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """What a disk refuses is a StorageError. `folder`: the mirror, named where the system names no file."""
    try:
        yield
    except ReaderGoneError:
        raise
    except OSError as error:
        where, why = error.filename or folder, error.strerror or error
        raise StorageError("mirror.disk-error", path=where, why=why) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What a disk refuses is a StorageError that says `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError("storage.unwritable", path=path, why=error.strerror) from error


def make_own_folder(path: Path) -> None:
    """Make `path` and what is missing above it. Errors: StorageError."""
    try:
        path.mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageError("storage.no-folder", path=path, why=error.strerror) from error
