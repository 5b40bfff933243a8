"""Byte streams to the other side: what a session needs, a child process's pipes, and a child that is heard out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Protocol, cast

from syncd.errors import RemoteError, SyncError, UnreachableError

#: What a read asks for: as much as a paramiko channel needs to be fast, and a full frame.
READ_BYTES = 512 * 1024
#: A child that was asked to end by closing its input gets this long; then it is killed.
END_GRACE_S = 1.0
#: Its last words arrive with its death, not later.
LAST_WORDS_S = 2.0
#: A blocked write looks this often whether the stream was closed meanwhile.
LOOK_EVERY_S = 0.2
#: What is kept of a child's stderr: its end. A login's message of the day must not fill the memory.
STDERR_BYTES = 16 * 1024

#: How often it is looked whether all is still within its bounds.
CHECK_EVERY_S = 1.0
#: rsync ends its own processes, and clears its unfinished files away, where it is told to end.
FAREWELL_S = 3.0
#: More than rsync says of a hundred thousand files that are gone. Nobody reads what comes after it.
MOST_SAID_BYTES = 16 * 2**20


class Stream(Protocol):
    """An ordered stream of bytes, both ways. One thread reads, any thread writes or closes."""

    def read(self, timeout_s: float) -> bytes | None:
        """What has arrived: b"" at the end, None where nothing came in time. Errors: OSError."""
        ...

    def write(self, data: bytes, timeout_s: float) -> None:
        """All of `data`. Errors: OSError; TimeoutError where none of it could be written for `timeout_s`."""
        ...

    def why(self) -> SyncError:
        """After the end: the best explanation of it."""
        ...

    def close(self) -> None:
        """End it; a read or write under way elsewhere ends too. May be called twice; never raises."""
        ...


def _widen(pipe: int) -> None:
    """Let a pipe hold what one read asks for, where the system can: with Linux's 64 KiB, 20 MB take twice as long."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # an account's limit on pipes
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, READ_BYTES)


class ChildStream:
    """The pipes of a child process. `explain(exit code or None, stderr)` turns its end into an error. `asks`: it may
    ask on our terminal, and then gets its Ctrl-C as well.

    Errors of the constructor: OSError where the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], explain: Callable[[int | None, str], SyncError], *, asks: bool = False
    ) -> None:
        self._explain = explain
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=not asks,  # Ctrl-C is for us: we say goodbye, and then end it
        )
        self._stdin, self._stdout, self._stderr = (
            cast("IO[bytes]", pipe) for pipe in (self._child.stdin, self._child.stdout, self._child.stderr)
        )
        self._in, self._out = self._stdin.fileno(), self._stdout.fileno()
        for pipe in (self._in, self._out):
            _widen(pipe)
        os.set_blocking(self._in, False)
        self._closed = False
        # A descriptor is closed only while nobody uses its number: it may be another file's the moment after.
        self._closing, self._writing, self._reading = threading.Lock(), threading.Lock(), threading.Lock()
        self._said = bytearray()
        self._listener = threading.Thread(target=self._listen, name="stderr", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        with self._stderr as pipe:
            while data := pipe.read(4096):
                self._said += data
                del self._said[:-STDERR_BYTES]

    @property
    def pid(self) -> int:
        """The child's."""
        return self._child.pid

    def read(self, timeout_s: float) -> bytes | None:
        """See `Stream`."""
        with self._reading:
            if self._closed:
                return b""
            poll = select.poll()
            poll.register(self._out, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return None
            return os.read(self._out, READ_BYTES)

    def write(self, data: bytes, timeout_s: float) -> None:
        """See `Stream`."""
        with self._writing:
            rest = memoryview(data)
            poll = select.poll()
            poll.register(self._in, select.POLLOUT)
            moved = time.monotonic()
            while rest:
                if self._closed:
                    raise BrokenPipeError("the connection was closed")
                if poll.poll(LOOK_EVERY_S * 1000):
                    with contextlib.suppress(BlockingIOError):
                        rest = rest[os.write(self._in, rest) :]
                        moved = time.monotonic()
                if time.monotonic() - moved > timeout_s:
                    raise TimeoutError(f"nothing could be sent for {timeout_s:g} s")

    def why(self) -> SyncError:
        """See `Stream`. Waits shortly for the child's last words."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._child.wait(LAST_WORDS_S)
        self._listener.join(LAST_WORDS_S)
        return self._explain(code, self._said.decode(errors="replace"))

    def close(self) -> None:
        """See `Stream`. The child gets `END_GRACE_S` to end by itself."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            with self._writing, contextlib.suppress(OSError):
                self._stdin.close()
            try:
                self._child.wait(END_GRACE_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            with self._reading:
                self._stdout.close()
            self._listener.join(LAST_WORDS_S)


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
                out, said = child.communicate(timeout=CHECK_EVERY_S)
                break
            except subprocess.TimeoutExpired as late:
                if time.monotonic() >= deadline:
                    raise UnreachableError("connection.no-answer", place=place, seconds=timeout_s) from None
                if len(late.output or b"") + len(late.stderr or b"") > MOST_SAID_BYTES:
                    raise RemoteError("server.says-too-much", place=place) from None
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
