"""The payload of LIVE: a ring's cell, packed by zlib. Poses take half of their bytes, and a slow link shows it."""

from __future__ import annotations

import zlib

from anchorleg.live.batches import JPEG
from anchorleg.live.ring import MAX_PAYLOAD_BYTES, Cell

#: A JPEG is packed already.
_STORED, _PACKED = 0, 6


def shrunk(cell: Cell) -> bytes:
    """What goes over the line."""
    return zlib.compress(cell.payload, _STORED if cell.kind == JPEG else _PACKED)


def grown(payload: bytes) -> bytes:
    """The cell's payload; b"", which is no batch, where it is damaged or larger than a cell."""
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(payload, MAX_PAYLOAD_BYTES + 1)
    except zlib.error:
        return b""
    return found if reader.eof and not reader.unused_data and len(found) <= MAX_PAYLOAD_BYTES else b""
