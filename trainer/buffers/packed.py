"""Arrays as zstd frames: what pictures are written as, some thirty times smaller than they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

#: The quickest: higher levels take five times as long for frames that are a tenth smaller.
LEVEL = 1


def packed(array: npt.NDArray[Any]) -> bytes:
    """`array` as one zstd frame, which states how much it unpacks to."""
    return zstandard.ZstdCompressor(level=LEVEL).compress(np.ascontiguousarray(array).tobytes())


def unpacked(data: bytes, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The array of `packed`, read-only. It takes no more memory than an array of `shape` and `dtype` does.

    Errors: ValueError, a sentence, where `data` is anything else.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    try:
        stated = zstandard.frame_content_size(data)
        if stated != size:  # -1: not stated, and nobody knows how much memory it would take
            told = "an unknown number of" if stated < 0 else str(stated)
            raise ValueError(f"it unpacks to {told} bytes; an array {shape} of {kind} has {size}")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"it is not one whole zstd frame ({error})") from None
    if len(raw) != size:
        raise ValueError(f"it unpacks to {len(raw)} bytes and states {size}")
    return np.frombuffer(raw, kind).reshape(shape)
