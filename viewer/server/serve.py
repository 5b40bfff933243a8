"""The one module that speaks HTTP and websockets. `gatekeeper` decides what is answered, `watchers` what is sent."""

from __future__ import annotations

import errno
import http
import logging
import socket
import threading
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.errors import BusyError, StorageError, UsageError, ViewerError
from viewer.live.hub import Hub
from viewer.server.assets import load_assets
from viewer.server.door import Door, Held
from viewer.server.gatekeeper import HttpAnswer, HttpRequest, answer
from viewer.server.owner import owner_of_port
from viewer.server.watchers import MOST_BYTES, Room
from viewer.sources.base import ViewSource

if TYPE_CHECKING:
    from websockets.sync.server import Server, ServerConnection

#: Never another address: whoever else is on this machine's networks has no business here.
LOOPBACK = "127.0.0.1"
#: Where another free port is looked for.
PORTS_TRIED = 50
_PRIVATE = 0o600
#: For a request, and for the other side's last word.
REQUEST_WITHIN_S = 5.0
#: A page that answers no ping for so long is gone (a laptop that sleeps). The answer comes behind all that is under
#: way: the largest scene, at 30 kB a second.
PONG_WITHIN_S = 300.0
#: At the end: for orderly goodbyes, and for threads after their connections were cut.
GOODBYE_S, CUT_S = 1.0, 5.0


class PageServer:
    """What `make_server` makes. `serve_forever` in one thread; `shutdown` from any."""

    def __init__(self, server: Server, door: Door, room: Room) -> None:
        self._server, self._door, self._room = server, door, room

    def serve_forever(self) -> None:
        """Until `shutdown`. Errors: ViewerError where the process cannot go on."""
        try:
            self._server.serve_forever()
        except RuntimeError as error:  # a thread that could not be started
            raise StorageError(f"this process may do no more at a time ({error}; ulimit -u): start it again.") from None
        except OSError as error:  # no descriptor to begin with: later the door refuses in its place
            raise StorageError(f"the page cannot be served ({error.strerror}; ulimit -n): start it again.") from None
        if self._room.failure:
            raise ViewerError(self._room.failure)

    def shutdown(self) -> None:
        """End within seconds, also where a page takes nothing any more."""
        ender = threading.Thread(target=self._server.shutdown, daemon=True)
        ender.start()
        ender.join(GOODBYE_S)
        self._door.cut()
        ender.join(CUT_S)


def open_port(port: int) -> socket.socket:
    """A listening socket on this machine's loopback; 0: any port. Errors: BusyError, which names the next free one;
    UsageError where nobody has it, and it cannot be had.
    """
    try:
        return _listening(port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            other = "one above 1023" if error.errno == errno.EACCES else "another one"
            words = f"port {port} cannot be opened ({error.strerror}): name {other} with --port."
            raise UsageError(words) from None
        owner = owner_of_port(port)
        whose = f" ({owner})" if owner else ""
        free = next_free(port)
        instead = f"`viewer --port {free}` would do" if free else "name another one with --port"
        raise BusyError(f"port {port} is taken{whose}: {instead} ({error.strerror}).") from None


def _listening(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((LOOPBACK, port))
        sock.listen()
    except (OSError, OverflowError):
        sock.close()
        raise
    return sock


def next_free(port: int) -> int | None:
    """The next port above `port` that can be had at this moment."""
    for other in range(port + 1, min(port + PORTS_TRIED, 65_535) + 1):
        try:
            with closing(_listening(other)):
                return other
        except OSError:
            continue
    return None


def open_socket(path: Path) -> socket.socket:
    """A listening Unix socket, for this account alone; `private.free_socket` looked before. Errors: StorageError."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(path))
        path.chmod(_PRIVATE)
        sock.listen()
    except OSError as error:
        sock.close()
        raise StorageError(
            f"no socket can be made at {path} ({error.strerror}): name another one with --socket."
        ) from None
    return sock


def make_server(
    sock: socket.socket, source: ViewSource, token: str, allowed_hosts: Collection[str] = (), hub: Hub | None = None
) -> PageServer:
    """A server on the listening `sock` which it takes over. `token`: of this
    place (`exchange.token_at`). `hub`: of the agents, closed by who made it.

    Errors: UsageError where the extra is not installed.
    """
    try:
        from websockets.datastructures import Headers  # noqa: PLC0415 - an extra
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415
        from websockets.http11 import Response  # noqa: PLC0415
        from websockets.sync.server import serve  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "the page needs `websockets`: `pip install '.[viewer]'` in Anchorleg's folder; `--headless` and `--json` "
            "do without."
        ) from None
    assets = load_assets()
    door = Door(sock)
    room = Room(
        source, token, ConnectionClosed, hub=hub, died=lambda: threading.Thread(target=page_server.shutdown).start()
    )

    def watch(connection: ServerConnection) -> None:
        held = connection.socket
        room.watch(connection, held.is_known if isinstance(held, Held) else lambda: None)

    def asked(_connection: ServerConnection, request: object) -> Response | None:
        said = HttpRequest(request.method, request.path, tuple(request.headers.raw_items()))  # type: ignore[attr-defined]
        told = answer(said, assets, allowed_hosts)
        return None if told is None else Response(told.status, _phrase(told), Headers(_headers(told)), told.body)

    logger = logging.getLogger("viewer.server")
    logger.addHandler(logging.NullHandler())  # strangers' broken requests are no news
    logger.propagate = False
    server = serve(
        watch, sock=door, process_request=asked, server_header=None, max_size=MOST_BYTES, logger=logger,
        open_timeout=REQUEST_WITHIN_S, close_timeout=REQUEST_WITHIN_S, ping_timeout=PONG_WITHIN_S,
    )  # fmt: skip
    page_server = PageServer(server, door, room)
    return page_server


def _phrase(told: HttpAnswer) -> str:
    return http.HTTPStatus(told.status).phrase


def _headers(told: HttpAnswer) -> dict[str, str]:
    return {**told.headers, "Content-Length": str(len(told.body)), "Connection": "close"}
