"""The one module that speaks HTTP and websockets. `http` decides what is answered, `watchers` what is sent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Collection, Iterator

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from viewer.errors import StorageError
from viewer.live.hub import Hub
from viewer.model import ViewSource
from viewer.server.http import answer, load_assets
from viewer.server.watchers import MOST_BYTES, Room

#: For a request.
REQUEST_WITHIN_S = 5.0
#: At the end, for the other side's last word: a page that takes nothing is cut off then.
GOODBYE_S = 1.0
#: A page that answers no ping for so long is gone (a laptop that sleeps). The answer comes behind all that is under
#: way: the largest scene, at 30 kB a second.
PONG_WITHIN_S = 300.0


class PageServer:
    """What `make_server` makes. `serve_forever` in one thread; `shutdown` from any."""

    def __init__(self, sock: socket.socket, room: Room, allowed_hosts: Collection[str]) -> None:
        self._sock, self._room, self._allowed = sock, room, allowed_hosts
        self._assets = load_assets()
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve_forever(self) -> None:
        """Until `shutdown`, Ctrl-C, or a signal that the process handles. Errors: ViewerError where it cannot go on."""
        try:
            with self._ending_at_signals(), asyncio.Runner() as runner:
                runner.get_loop()
                runner.run(self._serve())
        except OSError as error:  # later connections that find no free descriptor wait for one
            raise StorageError("page.not-served", why=error.strerror) from None
        if self._room.failure is not None:
            raise self._room.failure

    def shutdown(self) -> None:
        """End within seconds, also where a page takes nothing any more."""
        if self._loop is None:
            self._room.over.set()
        else:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._room.over.set)

    @contextlib.contextmanager
    def _ending_at_signals(self) -> Iterator[None]:
        """A handler that raises may do so where Python can only ignore it, and then nothing ends."""
        in_main = threading.current_thread() is threading.main_thread()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        ours = {number: handler for number, handler in before.items() if in_main and callable(handler)}
        for number in ours:
            signal.signal(number, lambda *_: self.shutdown())
        try:
            yield
        finally:
            for number, handler in ours.items():
                signal.signal(number, handler)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with serve(
            self._room.watch, sock=self._sock, process_request=self._asked, server_header=None, max_size=MOST_BYTES,
            logger=_quiet("viewer.server"), open_timeout=REQUEST_WITHIN_S, close_timeout=GOODBYE_S,
            ping_timeout=PONG_WITHIN_S,
        ):  # fmt: skip
            await self._room.over.wait()

    def _asked(self, _connection: ServerConnection, request: Request) -> Response | None:
        return answer(request, self._assets, self._allowed)


def make_server(
    sock: socket.socket, source: ViewSource, token: str, allowed_hosts: Collection[str] = (), hub: Hub | None = None
) -> PageServer:
    """A server on the listening `sock`, which it takes over. `hub`: of the agents, closed by who made it."""
    _quiet("asyncio")
    return PageServer(sock, Room(source, token, hub=hub), allowed_hosts)


def _quiet(name: str) -> logging.Logger:
    """Strangers' broken requests, and descriptors that are all in use for a while, are no news."""
    logger = logging.getLogger(name)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
