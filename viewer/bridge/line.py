"""One end of a bridge at work: sockets of browsers, or of the page's server, and the two ends of a pipe between."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from viewer.bridge.frames import MOST_DATA, WINDOW, BridgeFrame, BridgeKind, Unpacker, a_credit

#: Who has said nothing so long says that it lives.
SIGN_S = 5.0
#: With more than that on its way out, no socket is read.
MOST_WAITING = 256 * 1024
#: For a socket that takes nothing more, of a connection that is over at the other end.
LAST_WORDS_S = 10.0
#: Of one read of the pipe.
_READ = 256 * 1024
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLNVAL


@dataclass
class _Carried:
    """One connection. `credit`: how many bytes the other end will take; `taken`: what it has not been told of yet."""

    sock: socket.socket
    credit: int = WINDOW
    waiting: bytearray = field(default_factory=bytearray)
    taken: int = 0
    over_at: float | None = None  #: when the other end said that it is over; what waits is still written


class BridgeLine:
    """`reads`, `writes`: the pipe's descriptors, which somebody else closes. `opened`: called where the other end opens
    a connection, for the socket that it becomes (None: there is none to be had); None: only this end opens any.

    `silence_s`: an other end that says nothing so long is gone. `turn` raises EOFError where the pipe has ended,
    TimeoutError after such a silence, ValueError where the other end says what it cannot, OSError where it is broken.
    """

    def __init__(
        self,
        reads: int,
        writes: int,
        *,
        silence_s: float,
        opened: Callable[[], socket.socket | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reads, self._writes, self._opened, self._clock = reads, writes, opened, clock
        os.set_blocking(writes, False)
        self._silence_s = silence_s
        self._unpacker = Unpacker()
        self._out = bytearray()
        self._carried: dict[int, _Carried] = {}
        self._newest = 0
        self._spoke_at = self._heard_at = clock()
        self.token = ""  #: what the other end gave, by a TOKEN

    def __len__(self) -> int:
        return len(self._carried)

    def give_token(self, token: str) -> None:
        """Say of which token the page is."""
        self._say(BridgeFrame(BridgeKind.TOKEN, 0, token.encode()))

    def carry(self, sock: socket.socket) -> None:
        """Open a connection for `sock`, which is ours from now on."""
        self._newest += 1
        self._say(BridgeFrame(BridgeKind.OPEN, self._newest))
        self._take_up(self._newest, sock)

    def close(self) -> None:
        """End every connection; the pipe is left to who opened it."""
        for one in self._carried.values():
            one.sock.close()
        self._carried.clear()

    def turn(self, wait_s: float, others: Collection[int] = ()) -> set[int]:
        """Wait so long for anything to do, and do it. Returns those of `others` (descriptors) that can be read."""
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        for other in others:
            poll.register(other, select.POLLIN)
        if self._out:
            poll.register(self._writes, select.POLLOUT)
        by_number = {}
        may_read = len(self._out) < MOST_WAITING
        for number, one in self._carried.items():
            wants = select.POLLOUT if one.waiting else 0
            wants |= select.POLLIN if may_read and one.credit and one.over_at is None else 0
            if wants:
                by_number[one.sock.fileno()] = number
                poll.register(one.sock, wants)
        ready = dict(poll.poll(1000 * wait_s))
        if ready.get(self._reads, 0) & _READABLE:
            self._hear()
        for descriptor, number in by_number.items():
            if descriptor in ready:
                self._serve(number, ready[descriptor])
        self._look_at_the_clock()
        self._flush()
        return {other for other in others if other in ready}

    # --- the pipe -------------------------------------------------------------------------------------------------

    def hear(self, data: bytes) -> None:
        """What has come over the pipe before `turn` read it."""
        for frame in self._unpacker.frames(data):
            self._obey(frame)

    def _hear(self) -> None:
        data = os.read(self._reads, _READ)
        if not data:
            raise EOFError
        self._heard_at = self._clock()
        self.hear(data)

    def _say(self, frame: BridgeFrame) -> None:
        self._out += frame.packed()
        self._spoke_at = self._clock()

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._out:
                del self._out[: os.write(self._writes, self._out[:MOST_WAITING])]

    def _look_at_the_clock(self) -> None:
        now = self._clock()
        if now - self._heard_at > self._silence_s:
            raise TimeoutError
        if now - self._spoke_at >= SIGN_S and not self._out:
            self._say(BridgeFrame(BridgeKind.SIGN))
        for number, one in list(self._carried.items()):
            if one.over_at is not None and now - one.over_at > LAST_WORDS_S:
                self._drop(number)

    def _obey(self, frame: BridgeFrame) -> None:
        number = frame.connection
        if frame.kind is BridgeKind.OPEN:
            self._open(number)
        elif frame.kind is BridgeKind.TOKEN:
            self.token = frame.data.decode("ascii")
        elif frame.kind is not BridgeKind.SIGN and number > self._newest:
            raise ValueError("a connection that nobody has opened")
        elif (one := self._carried.get(number)) is None:
            pass  # over on this side, which the other end had not heard yet, or a sign of life
        elif frame.kind is BridgeKind.DATA:
            one.waiting += frame.data
            if len(one.waiting) + one.taken > WINDOW:
                raise ValueError("more of a connection than was asked for")
            self._write(number, one)
        elif frame.kind is BridgeKind.CREDIT:
            one.credit += frame.credit()
            if one.credit > WINDOW:
                raise ValueError("more was taken than was sent")
        else:
            one.over_at = self._clock()
            self._write(number, one)

    def _open(self, number: int) -> None:
        if self._opened is None or number <= self._newest:
            raise ValueError("a connection that is not the other end's to open")
        self._newest = number
        sock = self._opened()
        if sock is None:
            self._say(BridgeFrame(BridgeKind.CLOSE, number))
        else:
            self._take_up(number, sock)

    # --- the sockets ----------------------------------------------------------------------------------------------

    def _take_up(self, number: int, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._carried[number] = _Carried(sock)

    def _serve(self, number: int, what: int) -> None:
        one = self._carried.get(number)
        if one is not None and one.waiting and what & _WRITABLE:
            self._write(number, one)
        if number in self._carried and one is not None and one.over_at is None and what & _READABLE:
            self._read(number, one)

    def _read(self, number: int, one: _Carried) -> None:
        if not one.credit:
            return  # told by a hang-up; what is to be written will find out
        try:
            data = one.sock.recv(min(MOST_DATA, one.credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            one.credit -= len(data)
            self._say(BridgeFrame(BridgeKind.DATA, number, data))
        else:
            self._drop(number)

    def _write(self, number: int, one: _Carried) -> None:
        try:
            while one.waiting:
                count = one.sock.send(one.waiting)
                del one.waiting[:count]
                one.taken += count
        except BlockingIOError:
            pass
        except OSError:
            self._drop(number)
            return
        if one.over_at is not None:
            if not one.waiting:
                self._drop(number)
        elif one.taken >= WINDOW // 2:
            self._say(a_credit(number, one.taken))
            one.taken = 0

    def _drop(self, number: int) -> None:
        one = self._carried.pop(number)
        one.sock.close()
        if one.over_at is None:
            self._say(BridgeFrame(BridgeKind.CLOSE, number))
