"""Whether what failed may be there a moment later: memory, storage, files."""

from __future__ import annotations

import errno

from trainer.machine.shortage import words_of_shortage

#: Not EACCES, EROFS or EIO: what may not be read or written today may not be tomorrow.
_PASSING = {
    errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC,
    errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip


def is_for_a_moment(error: BaseException | None) -> bool:
    """Whether `error`, or what it comes from (its `__cause__`s), may not meet the job after this one."""
    while error is not None:
        if isinstance(error, TimeoutError) or words_of_shortage(error) is not None:
            return True
        if isinstance(error, OSError) and error.errno in _PASSING:
            return True
        error = error.__cause__
    return False
