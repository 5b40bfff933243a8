"""Whether an error says that there was no memory, and whether what failed may be there a moment later."""

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

#: Not EACCES, EROFS or EIO: what may not be read or written today may not be tomorrow.
_PASSING = {
    errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC,
    errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip


def words_of_shortage(error: BaseException) -> str | None:
    """What an `error` says of it where it is one of memory that was not there, else None."""
    words = " ".join(str(error).split())
    is_plain = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not is_plain and not (isinstance(error, RuntimeError) and any(word in words.lower() for word in _WORDS)):
        return None
    return words[:_QUOTE] or type(error).__name__


def is_for_a_moment(error: BaseException) -> bool:
    """Whether `error`, or what it comes from (its `__cause__`s), may not meet the job after this one."""
    return any(map(_is_one, _chain(error)))


def _chain(error: BaseException) -> list[BaseException]:
    """`error` and its causes, each once: somebody's code may raise an error from itself."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__
    return chain


def _is_one(error: BaseException) -> bool:
    if isinstance(error, TimeoutError) or words_of_shortage(error) is not None:
        return True
    return isinstance(error, OSError) and error.errno in _PASSING
