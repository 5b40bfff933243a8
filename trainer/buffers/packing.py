"""Pictures in few bytes, on their way to and from a file: zstd, in pieces.

Frames of an episode differ in few pixels, and zstd finds the rest again, though frames of other environments lie
between (bench/frames.py). Sorted by episode they would take as much, as differences a fifth less: not worth the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from trainer.buffers.rows import BadRowsError, Fields

#: What is packed at a time, uncompressed: memory for it is taken beside the rows.
PIECE_BYTES = 16 * 2**20
#: Higher ones are slower and find next to nothing more.
_LEVEL = 1
#: Names of a packed field's bytes, and of the lengths of its pieces.
_BYTES, _LENGTHS = ".zstd", ".zstd.lengths"


def packed(arrays: Mapping[str, npt.NDArray[Any]], piece_bytes: int = PIECE_BYTES) -> dict[str, npt.NDArray[Any]]:
    """`arrays` [rows, …] with pictures (uint8, three axes a row or more) packed: each becomes `<name>.zstd`, uint8, and
    `<name>.zstd.lengths`, int64.
    """
    found: dict[str, npt.NDArray[Any]] = {}
    for name, array in arrays.items():
        if array.dtype != np.uint8 or array.ndim < 4:
            found[name] = array
            continue
        rows = max(1, piece_bytes // max(1, prod(array.shape[1:])))
        pieces = [
            zstandard.ZstdCompressor(level=_LEVEL).compress(np.ascontiguousarray(array[at : at + rows]).data)
            for at in range(0, len(array), rows)
        ]
        found[f"{name}{_BYTES}"] = np.frombuffer(b"".join(pieces), np.uint8)
        found[f"{name}{_LENGTHS}"] = np.array([len(piece) for piece in pieces], np.int64)
    return found


def unpacked(arrays: Mapping[str, npt.NDArray[Any]], fields: Fields, rows: int) -> dict[str, npt.NDArray[Any]]:
    """What `packed` was made of: so many `rows` of `fields`. No bytes make it take more memory than these.

    Errors: BadRowsError.
    """
    found = {name: array for name, array in arrays.items() if name in fields}
    for name, (shape, dtype) in fields.items():
        data, lengths = arrays.get(f"{name}{_BYTES}"), arrays.get(f"{name}{_LENGTHS}")
        if data is None or lengths is None:
            continue
        if lengths.dtype != np.int64 or data.dtype != np.uint8 or (lengths < 0).any() or lengths.sum() != data.size:
            raise BadRowsError("rows.piece-lengths", field=name)
        found[name] = np.empty((rows, *shape), dtype)
        room, at = found[name].reshape(-1).view(np.uint8), 0
        for piece in np.split(data.reshape(-1), np.cumsum(lengths.reshape(-1))[:-1]):
            at += _unpack(name, piece.tobytes(), room[at:])
        if at < room.size:
            raise BadRowsError("rows.pieces-short", field=name, found=at, rows=rows, wanted=room.size)
    return found


def _unpack(name: str, piece: bytes, room: npt.NDArray[np.uint8]) -> int:
    """Into the beginning of `room`; how many bytes. Errors: BadRowsError."""
    try:
        stated = zstandard.frame_content_size(piece)
        if not 0 < stated <= room.size:  # -1: not stated
            raise BadRowsError("rows.piece-too-large", field=name, stated=stated, left=room.size)
        raw = zstandard.ZstdDecompressor().decompress(piece, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadRowsError("rows.no-zstd", field=name, why=error) from None
    if len(raw) != stated:
        raise BadRowsError("rows.piece-size", field=name, found=len(raw), stated=stated)
    room[:stated] = np.frombuffer(raw, np.uint8)
    return stated
