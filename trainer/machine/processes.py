"""Processes beside a learner: begun without the signals that ask to hand over, which reach all processes of a job (by
Ctrl-C the terminal's group, by `scancel` every one), ended with it, and the first to go where memory is short.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from anchorleg.signals import HAND_OVER_SIGNALS


@contextmanager
def hand_over_blocked() -> Iterator[None]:
    """Programs that are started within begin with the hand-over signals blocked: one that they end looks as if it did
    not work. Those of this process stay pending meanwhile, and none is lost: start there, wait outside.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HAND_OVER_SIGNALS)  # sigprocmask(2): inherited over exec
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_to_its_end(
    command: Sequence[str], timeout: float, env: Mapping[str, str] | None = None
) -> tuple[int, bytes, bytes]:
    """(exit status, output, errors) of a short program, which no hand-over signal ends. Errors: as `subprocess.run`."""
    with hand_over_blocked():
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
    with process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return process.returncode, output, errors


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
