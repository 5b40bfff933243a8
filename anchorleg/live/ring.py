"""A ring file: the newest few batches of one agent at play, written by its job and read on other machines.

Eight cells of 64 KiB at fixed places; batch number n lies in cell n % 8. Close-to-open is all that a network folder
promises (nfs(5), "Close-to-open cache consistency"), so each write and each look opens the file anew. Nothing is
renamed, synced to the disk or grown: what is lost by a crash was seconds old, and a torn cell fails its sum.

A cell is `magic, number u64, kind u8, length u32, crc32 u32`, big endian, and then the payload.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from anchorleg.files import file_mode, make_shared_folder

CELLS = 8
CELL_BYTES = 64 * 1024
MAGIC = b"ALr1"
_HEAD = struct.Struct(">4sQBII")
MAX_PAYLOAD_BYTES = CELL_BYTES - _HEAD.size
#: NONBLOCK: a pipe in a ring's place must stop nobody.
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITING = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Cell(NamedTuple):
    """One batch. `kind`: of `anchorleg.live.batches`; numbers of one ring only rise, also from job to job."""

    number: int
    kind: int
    payload: bytes


class RingWriter:
    """Writes one ring. The folder is made with the first batch. In a group's folder the group may read both, see
    `anchorleg.files`.

    Where another one writes, too (the ghost of an older attempt; batches name theirs), the numbers still rise.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._mode: int | None = None

    def write(self, kind: int, payload: bytes) -> bool:
        """Put the next batch in; False: it is too large. Errors: OSError."""
        if len(payload) > MAX_PAYLOAD_BYTES:
            return False
        if not self._number:
            make_shared_folder(self._path.parent)
            self._mode = file_mode(self._path.parent)
            # Readers go by the number, and look for the very next one: after a lost file the clock says where to go on.
            self._number = newest_number(self._path) or int(time.time() * 1000)
        self._number += 1
        fd = os.open(self._path, _WRITING, 0o640)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise FileExistsError(errno.EEXIST, "another file is in the ring's place", str(self._path))
            if self._mode is not None and stat.S_IMODE(mode) != self._mode:
                os.fchmod(fd, self._mode)
            there = _cell_at(fd, self._number % CELLS)
            if there is not None and there.number >= self._number:
                self._number = _all_of(fd)[-1].number + 1
            os.pwrite(fd, packed(Cell(self._number, kind, payload)), self._number % CELLS * CELL_BYTES)
        finally:
            os.close(fd)
        return True


class RingReader:
    """Looks at one ring from time to time. A ring that cannot be read has nothing new.

    `opened` gives a descriptor of the ring, to be closed here: for who reads below a folder that others write to.
    """

    def __init__(self, path: Path, opened: Callable[[], int] | None = None) -> None:
        self._opened = opened or (lambda: os.open(path, _READING))
        self._last: int | None = None

    def newer(self) -> list[Cell]:
        """What was written since the last look, oldest first; at the first look the newest batch alone.

        Who looks too seldom gets what is still there.
        """
        try:
            fd = self._opened()
        except OSError:
            return []
        try:
            if self._last is None:
                cells = _all_of(fd)[-1:]
            else:
                following = _cell_at(fd, (self._last + 1) % CELLS)
                if following is None or following.number <= self._last:
                    return []
                cells = [cell for cell in _all_of(fd) if cell.number > self._last]
        except OSError:
            return []
        finally:
            os.close(fd)
        if cells:
            self._last = cells[-1].number
        return cells


def newest_number(path: Path) -> int:
    """Of the newest whole cell; 0 where there is none."""
    cells = RingReader(path).newer()
    return cells[-1].number if cells else 0


def packed(cell: Cell) -> bytes:
    """The bytes of a cell."""
    head = _HEAD.pack(MAGIC, cell.number, cell.kind, len(cell.payload), 0)
    sum_ = zlib.crc32(cell.payload, zlib.crc32(head))
    return _HEAD.pack(MAGIC, cell.number, cell.kind, len(cell.payload), sum_) + cell.payload


def unpacked(data: bytes) -> Cell | None:
    """A cell that begins with `data`; None where none does, or a torn one."""
    if len(data) < _HEAD.size:
        return None
    magic, number, kind, length, _ = _HEAD.unpack_from(data)
    payload = data[_HEAD.size : _HEAD.size + length]
    cell = Cell(number, kind, payload)
    is_whole = magic == MAGIC and len(payload) == length <= MAX_PAYLOAD_BYTES
    return cell if is_whole and packed(cell)[: _HEAD.size] == data[: _HEAD.size] else None


def _cell_at(fd: int, place: int) -> Cell | None:
    """The whole cell that belongs there."""
    head = os.pread(fd, _HEAD.size, place * CELL_BYTES)
    if len(head) < _HEAD.size:
        return None
    length = _HEAD.unpack(head)[3]
    if length > MAX_PAYLOAD_BYTES:
        return None
    cell = unpacked(head + os.pread(fd, length, place * CELL_BYTES + _HEAD.size))
    return cell if cell is not None and cell.number % CELLS == place else None


def _all_of(fd: int) -> list[Cell]:
    found = (_cell_at(fd, place) for place in range(CELLS))
    return sorted(cell for cell in found if cell is not None)
