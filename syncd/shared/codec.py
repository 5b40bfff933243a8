"""A policy's weights as bytes: bf16, byte planes, zstd. About 0.36 of the float32 bytes.

::

    b"ANCHPOL1" | u32 big-endian length of the table | table | one zstd frame

The table is JSON, `[[name, [shape]], …]` in sorted order; the frame holds the high bytes of all numbers, then the low
bytes (sign, exponent and first mantissa bits repeat; the low ones are noise, and compress apart from them). A reader
knows the table and the size from the manifest and accepts no other, so nothing of a foreign table is ever parsed.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NewType, TypeAlias

import zstandard

from syncd.errors import DamagedPolicyError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_MAGIC = b"ANCHPOL1"
_LENGTH = struct.Struct(">I")
#: Level 3: 0.357 of float32 in milliseconds; 19 saves one more percent and takes a hundred times as long.
_LEVEL = 3
#: High and low byte → 1 where together they are a bf16 that is not finite.
_ALL_ONES = bytes(byte & 0x7F == 0x7F for byte in range(256))
_TOP_BIT = bytes(byte >= 0x80 for byte in range(256))

Shapes = Mapping[str, Sequence[int]]
Tensors: TypeAlias = "dict[str, npt.NDArray[np.float32]]"
#: What `rounded` gives: the lower halves of all numbers are zero.
Rounded = NewType("Rounded", "Tensors")


def rounded(tensors: Mapping[str, npt.NDArray[np.float32]]) -> Rounded:
    """float32 → bf16 → float32, to the nearest, ties to even, as torch does it: what a reader of the publication gets.

    Errors: ValueError that names the tensor: another dtype, or not finite.
    """
    return Rounded({name: _rounded(name, array) for name, array in tensors.items()})


def encode(weights: Rounded) -> bytes:
    """The bytes of `weights`. The same ones give the same bytes with the same zstd."""
    import numpy as np

    flat = [weights[name].reshape(-1).view(np.uint32) for name in sorted(weights)]
    bits = np.concatenate(flat) if flat else np.empty(0, np.uint32)
    planes = (bits >> 24).astype(np.uint8).tobytes() + (bits >> 16).astype(np.uint8).tobytes()
    table = _table({name: array.shape for name, array in weights.items()})
    frame = zstandard.ZstdCompressor(level=_LEVEL).compress(planes)
    return _MAGIC + _LENGTH.pack(len(table)) + table + frame


def check(data: bytes, shapes: Shapes) -> bytes:
    """The planes in `data`, which must be exactly those of `shapes`, and finite. Needs no numpy, as a mirror has none.
    Takes some times the bytes of `shapes`, whatever the frame claims. Errors: DamagedPolicyError, one phrase.
    """
    numbers = sum(math.prod(shape) for shape in shapes.values())
    planes = _decompressed(_frame(data, _table(shapes)), 2 * numbers)
    high, low = planes[:numbers].translate(_ALL_ONES), planes[numbers:].translate(_TOP_BIT)
    if int.from_bytes(high) & int.from_bytes(low):
        raise DamagedPolicyError("policy.not-finite")
    return planes


def decode(planes: bytes, shapes: Shapes) -> Tensors:
    """The tensors in what `check` returned; writable views of one array. Takes three times the bytes of `shapes`."""
    import numpy as np

    high, low = np.frombuffer(planes, np.uint8).reshape(2, -1)
    bits = high.astype(np.uint32)
    bits <<= 8
    bits |= low
    bits <<= 16
    values = bits.view(np.float32)
    tensors: Tensors = {}
    first = 0
    for name in sorted(shapes):
        after = first + math.prod(shapes[name])
        tensors[name] = values[first:after].reshape(tuple(shapes[name]))
        first = after
    return tensors


def raw_bytes(shapes: Shapes) -> int:
    """Decompressed bytes of tensors with these shapes."""
    return 2 * sum(math.prod(shape) for shape in shapes.values())


def _rounded(name: str, array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    import numpy as np

    if array.dtype != np.float32:
        raise ValueError(f"tensor {name} is {array.dtype}, not float32")
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
    if not _all_finite(bits):
        raise ValueError(f"tensor {name} is not finite")
    bits = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF_0000)
    if not _all_finite(bits):
        raise ValueError(f"tensor {name} is not finite in bf16 (a number exceeds 3.39e38)")
    return bits.view(np.float32).reshape(array.shape)


def _all_finite(bits: npt.NDArray[np.uint32]) -> bool:
    return not bool(((bits & 0x7F80_0000) == 0x7F80_0000).any())


def _table(shapes: Shapes) -> bytes:
    return json.dumps([[name, list(shapes[name])] for name in sorted(shapes)], separators=(",", ":")).encode()


def _frame(data: bytes, table: bytes) -> memoryview:
    """What follows the one table that is right."""
    if not data.startswith(_MAGIC):
        raise DamagedPolicyError("blob.bad-start")
    start = len(_MAGIC) + _LENGTH.size
    if data[len(_MAGIC) : start] != _LENGTH.pack(len(table)) or data[start : start + len(table)] != table:
        raise DamagedPolicyError("blob.other-tensors")
    return memoryview(data)[start + len(table) :]


def _decompressed(frame: memoryview, size: int) -> bytes:
    try:
        claimed = zstandard.get_frame_parameters(frame).content_size
        if claimed != size:
            raise DamagedPolicyError("blob.other-size", found=claimed, size=size)
        found = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DamagedPolicyError("blob.not-compressed") from error
    if len(found) != size:
        raise DamagedPolicyError("blob.other-size", found=len(found), size=size)
    return found
