"""The run folder's files, as the controller uses them: one small interface, so that a test can put a folder in memory.

Everything that the owner of a run reads or writes goes through the `disk` of its `RunDir`. Jobs use `anchorleg.files`.
"""

from __future__ import annotations

import json
import os
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from anchorleg import files

#: Of what lies in a run folder, whatever the umask: who may change it chooses what runs as the owner.
PRIVATE, PRIVATE_FOLDER = 0o600, 0o700


def private_opener(path: str, flags: int) -> int:
    """For `open`: a file that is made by it is for its owner alone. Errors: OSError."""
    return os.open(path, flags, PRIVATE)


class Disk:
    """Files below a run folder. What is made is for its owner alone. Errors of every method: OSError."""

    def names(self, folder: Path) -> list[str]:
        """What lies in a folder; nothing where there is no such folder."""
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder of that name."""
        try:
            os.stat(path)  # os.path.exists takes a server that fails for a moment (ESTALE, EIO) for an absence
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def version(self, path: Path) -> object:
        """Another one for each content that a file has had. Errors: FileNotFoundError."""
        found = os.stat(path)
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self, path: Path) -> bytes:
        """The whole file. Errors: FileNotFoundError."""
        # Without a file object around it: a controller reads thousands of small files at each look.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(handle, 64 << 10):
                parts.append(part)
        except OSError as error:
            error.filename = str(path)  # a folder is met by read(2), which does not know where
            raise
        finally:
            os.close(handle)
        return b"".join(parts)

    def tail(self, path: Path, length: int) -> bytes:
        """The last `length` bytes at most."""
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - length))
            return file.read(length)

    def write(self, path: Path, data: bytes) -> None:
        """Replace the file durably: the old one or the new one, never a part."""
        files.write_bytes(path, data, mode=PRIVATE)

    def create(self, path: Path, data: bytes) -> bool:
        """Create the file unless it exists. True: we made it."""
        return files.create_exclusive(path, data, mode=PRIVATE)

    def append(self, path: Path, value: Any) -> None:
        """One durable line of JSON."""
        files.append_lines(path, files.as_line(value), mode=PRIVATE)

    def make_folder(self, path: Path, *, exist_ok: bool = False) -> None:
        """Make a folder and its parents. Errors: FileExistsError."""
        files.make_folder(path.parent, PRIVATE_FOLDER)
        path.mkdir(PRIVATE_FOLDER, exist_ok=exist_ok)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        files.fsync_folder(path)

    def remove(self, path: Path) -> None:
        """Remove a file; none there is no error."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder with all that is in it, as far as that is possible."""
        shutil.rmtree(path, ignore_errors=True)

    def touch(self, path: Path) -> None:
        """Create an empty file."""
        path.touch()

    def link_target(self, path: Path) -> str | None:
        """Where a symbolic link leads, as it is written; None where there is none."""
        try:
            return os.readlink(path)
        except OSError:
            return None


LOCAL_DISK = Disk()


#: What a ledger of a few slots takes, twice. With less than that a disk is full, whatever single bytes still find room.
ROOM_BYTES = 64 << 10
#: Of a job's files only two change between two looks: the others need not be parsed again. Four of each slot fit, in
#: the largest run that a config allows.
RECORDS_KEPT = 8192


def left_on_full_disk(folder: Path) -> int | None:
    """The bytes that a user may still write there (0: no file either), where the disk is full; None: it is not."""
    try:
        told = os.statvfs(folder)
    except OSError:
        return None
    left = 0 if told.f_files and not told.f_favail else told.f_bavail * told.f_frsize
    return left if left < ROOM_BYTES else None


def is_same_folder(one: str, other: str) -> bool | None:
    """Whether two paths lead to one folder: it may be mounted twice. None: nothing can be found at one of them."""
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return None


def is_out_of_inodes(folder: Path) -> bool:
    """Whether a user may make no file more there, whatever bytes are free: `df -i`, not `df`, shows it."""
    try:
        told = os.statvfs(folder)
    except OSError:
        return False
    return told.f_files > 0 and not told.f_favail


def numbers_in(disk: Disk, folder: Path, end: str = "") -> list[int]:
    """The names in `folder` that are a number with `end` behind it, as numbers, ascending."""
    stems = [name.removesuffix(end) for name in disk.names(folder) if name.endswith(end)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def read_json(disk: Disk, path: Path) -> Any:
    """The JSON value of a file. Errors: OSError; ValueError where it is not JSON."""
    data = disk.read(path)
    try:
        return from_json(data)  # in half of the time of `json`: a ledger of a thousand slots is megabytes
    except ValueError:
        return json.loads(data)  # which knows the names of files that are no UTF-8


def read_json_or_none(disk: Disk, path: Path) -> Any | None:
    """The JSON value of a file, None where it is absent or torn: for files that are only hints."""
    try:
        return read_json(disk, path)
    except (OSError, ValueError):
        return None


def read_record(model: type[BaseModel], path: Path, disk: Disk = LOCAL_DISK) -> Any:
    """The record in `path`, None where it is absent, torn or of another shape."""
    try:
        return _parsed(model, disk.read(path))
    except (OSError, ValueError):  # the second: no file can have such a name
        return None


@lru_cache(maxsize=RECORDS_KEPT)
def _parsed(model: type[BaseModel], data: bytes) -> Any:
    try:
        return model.model_validate_json(data)
    except ValueError:
        return None
