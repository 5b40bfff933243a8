"""How large a JPEG says it is, read from its bytes: whoever decodes one takes memory for so many pixels. Pure."""

from __future__ import annotations

#: On a side. A batch has 64 KiB at most, but 64 KiB may unpack to 65,535 pixels on a side.
MOST_PIXELS = 2048
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_ALONE = {0x01, *range(0xD0, 0xD8)}


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """(width, height); None where the bytes do not say (ITU-T T.81, annex B)."""
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return None
        mark = data[at + 1]
        if mark == 0xFF or mark in _ALONE:
            at += 1 if mark == 0xFF else 2
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if mark in _FRAMES and at + 9 <= len(data):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        if length < 2 or mark in _FRAMES:
            return None
        at += 2 + length
    return None
