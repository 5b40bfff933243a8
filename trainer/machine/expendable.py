"""Processes beside a learner that can be made again, and those that end with the one that started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

#: The highest there is (proc(5), oom_score_adj).
_FIRST_TO_GO = "1000"
#: `prctl(2)`: the signal that a process gets when its parent dies.
_PR_SET_PDEATHSIG = 1


def be_expendable() -> None:
    """Where the job's memory is short the kernel ends this process, and not the larger learner. On Linux only."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")


def end_with(parent: int) -> None:
    """This process ends with its `parent`, also where that is killed (on Linux), or has died before this call."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
