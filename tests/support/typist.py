"""Types at a program in a pseudo-terminal, as a person would: waits for words, answers them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

from daemons import PATIENCE_S

#: A terminal's driver puts colours between words.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _take_terminal() -> None:
    """Make standard input the new session's controlling terminal: ssh asks on /dev/tty."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Typist:
    """A program at its own terminal of 80 columns. `seen`: everything it has shown so far, without colours."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        self._fd, inner = pty.openpty()
        self._child = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, cwd=cwd, start_new_session=True,
            env={**env, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}, preexec_fn=_take_terminal,  # noqa: PLW1509
        )  # fmt: skip
        os.close(inner)
        self.seen = ""

    def wait_for(self, words: str, timeout_s: float = PATIENCE_S) -> None:
        """Until `words` were shown. Errors: TimeoutError, with what was."""
        deadline = time.monotonic() + timeout_s
        while words not in self.seen:
            if time.monotonic() > deadline or not self._read(0.1):
                raise TimeoutError(f"{words!r} was not shown within {timeout_s:g} s, but:\n{self.seen}")

    def type(self, line: str) -> None:
        """A line, and return."""
        os.write(self._fd, line.encode() + b"\n")

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code. Errors: TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while self._read(0.1) and time.monotonic() < deadline:
            pass
        try:
            return self._child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"it did not end within {timeout_s:g} s, but showed:\n{self.seen}") from None

    def close(self) -> None:
        """Kill what still runs."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        os.close(self._fd)

    def _read(self, timeout_s: float) -> bool:
        """Whether the terminal is still open."""
        if select.select([self._fd], [], [], timeout_s)[0]:
            try:
                data = os.read(self._fd, 4096)
            except OSError:  # Linux's way to say that the other end is closed
                return False
            self.seen += _ESCAPES.sub("", data.decode(errors="replace"))
            return bool(data)
        return True
