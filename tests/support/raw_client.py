"""One who speaks the protocol of `syncd serve` by hand: what no client of ours would say, when the test wants it."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from types import TracebackType
from typing import Self

from daemons import PATIENCE_S
from sshd import Laptop

from syncd.wire.protocol import PING_EVERY_S, PREAMBLE, PROTOCOL, Decoder, Hello, Message, Ping, Welcome, encode


class RawClient:
    """One connection through `ssh`, which has been welcomed; it is never silent. Broken off at the block's end."""

    def __init__(self, laptop: Laptop) -> None:
        self._child = subprocess.Popen(
            ["ssh", "-F", str(laptop.config), "cluster", "syncd serve"], env=laptop.env(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
        )  # fmt: skip
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin, self._child.stdout
        self._decoder, self._arrived, self._noise = Decoder(), list[Message](), b""
        self._is_welcome = False
        self._saying, self._over = threading.Lock(), threading.Event()
        self._pinger = threading.Thread(target=self._ping, daemon=True)
        self.say(Hello(protocol=PROTOCOL, version="0", client=laptop.name))
        self.answer(Welcome)
        self._pinger.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._pinger.join(PATIENCE_S)
        self._child.kill()
        self._child.wait(PATIENCE_S)
        self._stdin.close()
        self._stdout.close()

    def say(self, message: Message, payload: bytes = b"") -> None:
        """One frame."""
        with self._saying:
            self._stdin.write(encode(message, payload))

    def answer(self, *kinds: type[Message]) -> Message:
        """The next message of one of these kinds; others are passed over. Errors: AssertionError at the end."""
        while True:
            while self._arrived:
                message = self._arrived.pop(0)
                if isinstance(message, kinds):
                    return message
            self._read()

    def _read(self) -> None:
        data = self._stdout.read(65_536)
        assert data, "the server has ended the connection"
        if not self._is_welcome:
            self._noise, found, data = (self._noise + data).partition(PREAMBLE)
            self._is_welcome = bool(found)
        if self._is_welcome:
            self._arrived += [frame.message for frame in self._decoder.feed(data)]

    def _ping(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # the server has ended the connection
            while not self._over.wait(PING_EVERY_S):
                self.say(Ping(n=0))
