"""Metrics and evaluations beside the policies: rows in immutable chunks, of which only the last one changes.

A curve that grew by one row costs one small file on the way to a laptop, not the whole curve again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Any

from anchorleg.files import make_shared_folder
from syncd.shared.layout import SlotPlace, put

#: Rows of one chunk: 0.2 MB of metrics on MT10 and 0.8 on MT50, the most that one new row makes a laptop fetch.
CHUNK_ROWS = 128
#: More is no chunk of ours; a reader does not load it.
MAX_CHUNK_BYTES = 4 * 1024 * 1024

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_FILE = re.compile(r"([a-z][a-z0-9_]{0,40})-([0-9]{6})\.jsonl")


def chunk_of_file(name: str) -> tuple[str, int] | None:
    """(curve, number of the chunk) from a chunk's file name; None where it is not one."""
    found = _FILE.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def write_metrics(place: SlotPlace, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Make the curve `name` be these rows, in order; files whose content stays are not touched.

    Errors: OSError; ValueError for a name that is none or a row that is no JSON (NaN).
    """
    GrowingCurve(place, name).write(rows, anew=True)


class GrowingCurve:
    """The curve `name` for a writer that adds to it again and again: it has the lines of the last file alone in memory,
    and adds to that without a look into the others. Errors: ValueError for a name that is none.
    """

    def __init__(self, place: SlotPlace, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a curve name: use small letters, digits and '_'")
        self._place, self._name = place, name
        #: The files as it left them; none where a write failed half-way.
        self._left: dict[int, tuple[int, int]] = {}
        #: The lines of the last of them, unless that is full.
        self._last: list[bytes] = []

    def is_as_left(self) -> bool:
        """Whether it has written files, and they are still those: a ghost may write too. Errors: OSError."""
        return bool(self._left) and self._left == {
            number: _mark(_path(self._place, self._name, number)) for number in _numbers(self._place, self._name)
        }

    def write(self, rows: Iterable[Mapping[str, Any]], *, anew: bool) -> None:
        """Add `rows`; or make the curve be these rows, `anew`, as one needs that is not as it was left.

        Errors: OSError; ValueError for a row that is no JSON (NaN). It is not as it was left then.
        """
        left, last = ({}, []) if anew else (self._left, self._last)
        self._left, self._last = {}, []
        make_shared_folder(self._place.metrics)
        coming = map(_line, rows)
        while news := [*islice(coming, CHUNK_ROWS - len(last))]:
            number, last = len(left) - bool(last), last + news
            path, data = _path(self._place, self._name, number), b"".join(last)
            if not anew:
                put(path, data)
            elif _bytes_or_none(path) != data:
                self._drop_after(number)  # first: behind a file that is full they would be believed
                put(path, data)
            left[number] = _mark(path)
            last = last if len(last) < CHUNK_ROWS else []
        self._drop_after(len(left) - 1)
        self._left, self._last = left, last

    def _drop_after(self, last: int) -> None:
        """Delete the files behind number `last`: a slot that went back to an older checkpoint has fewer rows."""
        surplus = [number for number in _numbers(self._place, self._name) if number > last]
        for number in reversed(surplus):
            _path(self._place, self._name, number).unlink(missing_ok=True)


def read_metrics(place: SlotPlace, name: str, *, parts: int | None = None) -> list[dict[str, Any]]:
    """The rows of the curve `name`, [] where it is absent; of its first `parts` chunks only, where that is given: a
    mirror may have 1 GiB of what a stranger wrote. Errors: OSError.

    A chunk is believed only if all before it are full: one left over from before a setback is not shown. Lines that
    are no JSON object are passed over.
    """
    return list(rows_of_curve(place, name, parts=parts))


def rows_of_curve(place: SlotPlace, name: str, *, parts: int | None = None) -> Iterator[dict[str, Any]]:
    """The same, one at a time: all those of a long training on fifty tasks would fill 3 GB."""
    for number in count() if parts is None else range(parts):
        lines = (_bytes_or_none(_path(place, name, number)) or b"").splitlines()
        yield from (row for row in map(_row_or_none, lines) if row is not None)
        if len(lines) != CHUNK_ROWS:
            return


def _path(place: SlotPlace, name: str, number: int) -> Path:
    return place.metrics / f"{name}-{number:06d}.jsonl"


def _numbers(place: SlotPlace, name: str) -> list[int]:
    try:
        found = [chunk_of_file(path.name) for path in place.metrics.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(chunk[1] for chunk in found if chunk is not None and chunk[0] == name)


def _mark(path: Path) -> tuple[int, int]:
    """What tells a file from one that was put in its place, without reading it: its inode and its bytes."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return -1, -1
    return found.st_ino, found.st_size


def _line(row: Mapping[str, Any]) -> bytes:
    return (json.dumps(dict(row), allow_nan=False, separators=(",", ":")) + "\n").encode()


def _row_or_none(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _bytes_or_none(path: Path) -> bytes | None:
    try:
        with open(path, "rb") as file:
            data: bytes = file.read(MAX_CHUNK_BYTES + 1)
    except FileNotFoundError:
        return None
    return data if len(data) <= MAX_CHUNK_BYTES else None
