"""The hand-over signals, which reach all processes of a job: by Ctrl-C the terminal's group, by `scancel` every one."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

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
