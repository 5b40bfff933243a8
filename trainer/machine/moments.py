"""Whether what failed may be there a moment later: memory, storage, files."""

from __future__ import annotations

import errno

from trainer.machine.shortage import words_of_shortage

#: Not EACCES, EROFS or EIO: what may not be read or written today may not be tomorrow.
_PASSING = {
    errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC,
    errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip


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
