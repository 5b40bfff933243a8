"""Whether an error says that there was no memory."""

from __future__ import annotations

import errno

#: What libraries say when they get no memory: torch's allocators for the CPU and for CUDA, the C library, cuBLAS.
_WORDS = (
    "can't allocate memory",
    "out of memory",
    "cannot allocate memory",
    "alloc_failed",
    "cublas_status_not_initialized",
)
#: As much of a library's own words as a sentence can bear.
_QUOTE = 160


def words_of_shortage(error: BaseException) -> str | None:
    """What an `error` says of it where it is one of memory that was not there, else None."""
    words = " ".join(str(error).split())
    is_plain = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not is_plain and not (isinstance(error, RuntimeError) and any(word in words.lower() for word in _WORDS)):
        return None
    return words[:_QUOTE] or type(error).__name__
