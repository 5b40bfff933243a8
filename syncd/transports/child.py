"""The end of a program that another machine talks through: what it said, bounded in time and in memory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from syncd.errors import RemoteError, UnreachableError

#: How often it is looked whether all is still within its bounds.
LOOK_EVERY_S = 1.0
#: rsync ends its own processes, and clears its unfinished files away, where it is told to end.
FAREWELL_S = 3.0
#: More than rsync says of a hundred thousand files that are gone. Nobody reads what comes after it.
MOST_SAID_BYTES = 16 * 2**20


def run_bounded(
    child: subprocess.Popen[str], place: str, timeout_s: float, check: Callable[[], None] = lambda: None
) -> subprocess.CompletedProcess[str]:
    """Wait for `child` (its pipes are ours, its input is not), and return what it said. `place`: whose words they are.

    `check` is called now and then; with what it raises the child is ended, as with any error.
    Errors: UnreachableError after `timeout_s`; RemoteError where it says too much.
    """
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                out, said = child.communicate(timeout=LOOK_EVERY_S)
                break
            except subprocess.TimeoutExpired as late:
                if time.monotonic() >= deadline:
                    raise UnreachableError(f"{place} did not answer within {timeout_s:g} s") from None
                if len(late.output or b"") + len(late.stderr or b"") > MOST_SAID_BYTES:
                    raise RemoteError(f"{place} says more than a person could read: nothing of it is used") from None
            check()
        check()
    except BaseException:
        _end(child)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        raise
    return subprocess.CompletedProcess(child.args, child.returncode, out, said)


def _end(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.wait(FAREWELL_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
