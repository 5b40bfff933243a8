"""Checkpoints on a network folder, which may refuse a read for a moment: what is not read now is not damaged."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

from anchorleg.job import CheckpointRef
from trainer.errors import DamagedCheckpointError, UnreadCheckpointError

#: What cannot be read for a moment is read again after so many seconds each.
PAUSES_S = (1.0, 2.0, 4.0)
#: Where these stay, a checkpoint counts as damaged: a bad block of a disk is no reason to stop a slot for ever.
_STAYS = (errno.EIO, errno.EACCES)

_T = TypeVar("_T")


def patiently(ref: CheckpointRef, load: Callable[[], _T], pause: Callable[[float], None] = time.sleep) -> _T:
    """`load()`, which reads the checkpoint `ref`; some times more where that cannot be read for a moment.

    Errors: those of `load`; UnreadCheckpointError where it cannot be read now: to pass it over would be to lose it.
    """
    for seconds in PAUSES_S:
        try:
            return load()
        except DamagedCheckpointError as error:
            if error.unread is None:
                raise
        pause(seconds)
    try:
        return load()
    except DamagedCheckpointError as error:
        if error.unread is None or error.unread in _STAYS:
            raise
        raise UnreadCheckpointError(_sentence(ref, error)) from error


def _sentence(ref: CheckpointRef, error: DamagedCheckpointError) -> str:
    return (
        f"the checkpoint of step {ref.step} in {ref.path} cannot be read now ({error}); nothing was decided, for it "
        "may be good: start again when it can be read"
    )
