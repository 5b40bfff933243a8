"""Large arrays of zeros, of which only the pages that are written to take memory.

A ring may be far larger than what ever comes, above all one of frames, and the system would refuse to promise memory
for all of it: Linux, as it is usually set, refuses what is more than the whole machine has.
"""

from __future__ import annotations

import mmap
import sys
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

#: Linux's MAP_NORESERVE, which Python 3.11 has no name for: nothing is promised. Elsewhere nothing ever is.
_UNPROMISED = 0x4000 if sys.platform == "linux" else 0
#: From here on huge pages pay, as NumPy has it.
_LARGE_BYTES = 4 * 2**20


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """[*shape], writable, on pages of its own. Errors: OSError (ENOMEM) where even the addresses are refused."""
    kind, count = np.dtype(dtype), prod(shape)
    size = max(1, count * kind.itemsize)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNPROMISED)
    if size >= _LARGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, kind, count).reshape(shape)
