"""The one module that speaks HTTP and websockets. `gatekeeper` decides what is answered, `watchers` what is sent."""

from __future__ import annotations

import http
import logging
import socket
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.errors import BusyError, StorageError, UsageError
from viewer.live.hub import Hub
from viewer.server.assets import load_assets
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


def open_port(port: int) -> socket.socket:
    """A listening socket on this machine's loopback; 0: any port. Errors: BusyError, which names the next free one."""
    try:
        return _listening(port)
    except OSError as error:
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
) -> Server:
    """A server on the listening `sock`; its `serve_forever` runs until `shutdown`. `hub`: of the agents, closed by who
    made it. Errors: UsageError where the extra is not installed.
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
    room = Room(source, token, ConnectionClosed, hub=hub)

    def asked(_connection: ServerConnection, request: object) -> Response | None:
        said = HttpRequest(request.method, request.path, tuple(request.headers.raw_items()))  # type: ignore[attr-defined]
        told = answer(said, assets, allowed_hosts)
        return None if told is None else Response(told.status, _phrase(told), Headers(_headers(told)), told.body)

    logger = logging.getLogger("viewer.server")
    logger.addHandler(logging.NullHandler())  # strangers' broken requests are no news
    logger.propagate = False
    return serve(
        room.watch, sock=sock, process_request=asked, server_header=None, max_size=MOST_BYTES, logger=logger,
    )  # fmt: skip


def _phrase(told: HttpAnswer) -> str:
    return http.HTTPStatus(told.status).phrase


def _headers(told: HttpAnswer) -> dict[str, str]:
    return {**told.headers, "Content-Length": str(len(told.body)), "Connection": "close"}
