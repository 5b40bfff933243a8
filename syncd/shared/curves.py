"""Metrics and evaluations beside the policies: rows in immutable chunks, of which only the last one changes.

A curve that grew by one row costs one small file on the way to a laptop, not the whole curve again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syncd.shared.layout import SlotPlace, make_folder, put

#: Rows of one chunk: about 40 kB of metrics, the most that one new row makes a laptop fetch.
CHUNK_ROWS = 128
#: More is no chunk of ours; a reader does not load it.
MAX_CHUNK_BYTES = 4 * 1024 * 1024

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_FILE = re.compile(r"([a-z][a-z0-9_]{0,40})-([0-9]{6})\.jsonl")


def chunk_of_file(name: str) -> tuple[str, int] | None:
    """(curve, number of the chunk) from a chunk's file name; None where it is not one."""
    found = _FILE.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def write_metrics(place: SlotPlace, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Make the curve `name` be these rows, in order; files whose content stays are not touched.

    Errors: OSError; ValueError for a name that is none or a row that is no JSON (NaN).
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} names no curve: small letters, digits and '_'")
    make_folder(place.metrics)
    chunks = [
        b"".join(_line(row) for row in rows[first : first + CHUNK_ROWS]) for first in range(0, len(rows), CHUNK_ROWS)
    ]
    surplus = [number for number in _numbers(place, name) if number >= len(chunks)]
    for number in reversed(surplus):  # a slot that went back to an older checkpoint has fewer rows than before
        _path(place, name, number).unlink(missing_ok=True)
    for number, data in enumerate(chunks):
        path = _path(place, name, number)
        if _bytes_or_none(path) != data:
            put(path, data)


def read_metrics(place: SlotPlace, name: str, *, parts: int | None = None) -> list[dict[str, Any]]:
    """The rows of the curve `name`, [] where it is absent; of its first `parts` chunks only, where that is given: a
    mirror may have 64 MiB of what a stranger wrote. Errors: OSError.

    A chunk is believed only if all before it are full: one left over from before a setback is not shown. Lines that
    are no JSON object are passed over.
    """
    rows: list[dict[str, Any]] = []
    number = 0
    while parts is None or number < parts:
        data = _bytes_or_none(_path(place, name, number))
        if data is None:
            return rows
        lines = data.splitlines()
        rows += [row for row in map(_row_or_none, lines) if row is not None]
        if len(lines) != CHUNK_ROWS:
            return rows
        number += 1
    return rows


def _path(place: SlotPlace, name: str, number: int) -> Path:
    return place.metrics / f"{name}-{number:06d}.jsonl"


def _numbers(place: SlotPlace, name: str) -> list[int]:
    found = (chunk_of_file(path.name) for path in place.metrics.iterdir())
    return sorted(chunk[1] for chunk in found if chunk is not None and chunk[0] == name)


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
