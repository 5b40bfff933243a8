"""A client of `Server`, which runs in a thread: over pipes, with a clock that the test can put forward."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from daemons import PATIENCE_S

from syncd.wire import protocol
from syncd.wire.protocol import PREAMBLE, Decoder, Frame, Message, encode
from syncd.wire.server import Server

HELLO = protocol.Hello(protocol=protocol.PROTOCOL, version="test", client="anna")


class Connection:
    """A client of a server that runs in a thread. `ahead_s` is added to the server's clock."""

    def __init__(self, shared: Path, contributor: str | None = None) -> None:
        self.ahead_s = 0.0
        their_in, self.out = os.pipe()
        self.inn, their_out = os.pipe()
        self.clock: Callable[[], float] = lambda: time.monotonic() + self.ahead_s
        self.server = Server(shared, contributor, their_in, their_out, clock=self._now)
        self.thread = threading.Thread(target=self._run, args=(their_in, their_out))
        self.decoder = Decoder()
        self.frames: list[Frame] = []
        self.preamble = b""
        self.thread.start()

    def _now(self) -> float:
        return self.clock()

    def _run(self, *fds: int) -> None:
        try:
            self.server.run()
        finally:
            for fd in fds:
                os.close(fd)

    def send(self, *messages: Message, payload: bytes = b"") -> None:
        for message in messages:
            os.write(self.out, encode(message, payload))

    def receive(self, kind: type[Message]) -> Frame:
        """The next frame of this kind; others are passed over. EOFError where the server ended before."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            while self.frames:
                frame = self.frames.pop(0)
                if isinstance(frame.message, kind):
                    return frame
            data = os.read(self.inn, 65536)
            if not data:
                raise EOFError
            if len(self.preamble) < len(PREAMBLE):
                self.preamble += data
                data, self.preamble = self.preamble[len(PREAMBLE) :], self.preamble[: len(PREAMBLE)]
            self.frames += self.decoder.feed(data)
        raise TimeoutError(kind.__name__)

    def close(self) -> None:
        for fd in (self.out, self.inn):
            try:
                os.close(fd)
            except OSError:
                continue
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
