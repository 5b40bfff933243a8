"""The listening socket, with a bound to all that strangers can take of us: connections, time, file descriptors.

Another account of a laptop can open as many connections as it likes, and leave each of them half said. So those that
have shown nothing yet are counted and refused beyond a number, a page that takes nothing does not keep its thread for
ever, and a process without a free file descriptor refuses one after the other instead of ending.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from typing import Any

#: Connections that have not shown the token: some pages that load all their files at once.
MOST_STRANGERS = 48
#: For one part of a message: a page that takes nothing so long is gone.
SEND_WITHIN_S = 10.0
#: Descriptors come back when connections end.
FULL_WAIT_S = 0.1
#: A connection that is gone before it was taken leaves nothing to wait for.
_ACCEPT_WITHIN_S = 1.0
_FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_GONE = {errno.ECONNABORTED, errno.EPROTO, errno.EINTR, errno.EAGAIN}

FULL_SENTENCE = "Too many connections are open here: close some pages, or load this one again in some seconds."


def turn_away(sock: socket.socket, sentence: str) -> None:
    """Say why to who has just come, and end that connection."""
    body = f"{sentence}\n".encode()
    answer = (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nRetry-After: 5\r\nConnection: close\r\n"
        b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )
    with contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.send(answer)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(65_536)  # what was asked already: unread, it would take our answer away with it
    sock.close()


class Held(socket.socket):
    """A connection that its door counts until it is closed."""

    def __init__(self, fd: int, door: Door) -> None:
        super().__init__(fileno=fd)
        self.setblocking(True)  # macOS hands on that the listening socket, which has a timeout, does not block
        self._door = door
        whole, part = divmod(SEND_WITHIN_S, 1)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(whole), int(part * 1e6)))

    def close(self) -> None:
        """As a socket does, and count no more."""
        super().close()
        self._door.forget(self)

    def is_known(self) -> None:
        """It has shown the token."""
        self._door.know(self)

    def refuse(self) -> None:
        """Say why, and end."""
        turn_away(self, FULL_SENTENCE)


class Door(socket.socket):
    """The listening `sock`, whose `accept` gives a `Held`. `most`: strangers at a time."""

    def __init__(self, sock: socket.socket, most: int = MOST_STRANGERS) -> None:
        super().__init__(fileno=os.dup(sock.fileno()))
        self._first = sock
        self.settimeout(_ACCEPT_WITHIN_S)
        self._most = most
        self._lock = threading.Lock()
        self._strangers: set[Held] = set()
        self._known: set[Held] = set()
        #: Given up to take a connection, and refuse it, where there is no other descriptor left.
        self._spare = _nothing()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; one that is refused comes closed. Errors: OSError, where the door itself is closed."""
        while True:
            try:
                fd, address = self._accept()  # type: ignore[attr-defined]
            except TimeoutError:
                continue
            except OSError as error:
                if self.fileno() < 0 or error.errno not in _FULL | _GONE:
                    raise
                if error.errno in _FULL:
                    self._refuse_with_spare()
                continue
            held = Held(fd, self)
            with self._lock:
                enters = len(self._strangers) < self._most
                if enters:
                    self._strangers.add(held)
            if not enters:
                held.refuse()
            return held, address

    def _refuse_with_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            with contextlib.suppress(OSError):
                fd, _ = self._accept()  # type: ignore[attr-defined]
                Held(fd, self).refuse()
        self._spare = _nothing()
        if self._spare is None:
            time.sleep(FULL_WAIT_S)

    def know(self, held: Held) -> None:
        """It is no stranger any more."""
        with self._lock:
            if held in self._strangers:
                self._strangers.remove(held)
                self._known.add(held)

    def forget(self, held: Held) -> None:
        """It is closed."""
        with self._lock:
            self._strangers.discard(held)
            self._known.discard(held)

    def cut(self) -> None:
        """End every connection at once, whatever waits on it."""
        with self._lock:
            everybody = [*self._strangers, *self._known]
        for held in everybody:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """As a socket does."""
        super().close()
        self._first.close()
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)


def _nothing() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return None
