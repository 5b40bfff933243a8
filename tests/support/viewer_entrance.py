"""How a test enters a viewer as its page does, over `websockets`; and a server of the test's own, whose token stays."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

from daemons import PATIENCE_S

from viewer.live.hub import Hub, HubSettings
from viewer.model import ViewSource
from viewer.server.serve import PageServer, make_server
from viewer.server.sockets import open_port

TOKEN = 43 * "t"


def enter(line: Any, token: str) -> None:
    """Show the token on the open connection `line`."""
    line.send(json.dumps({"token": token}))


@contextlib.contextmanager
def served(
    source: ViewSource, port: int = 0, settings: HubSettings = HubSettings()
) -> Iterator[tuple[str, PageServer]]:
    """A page of `source` in this process: its address, and its server."""
    sock, hub = open_port(port), Hub(settings)
    at = sock.getsockname()[1]
    server = make_server(sock, source, TOKEN, hub=hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{at}/#{TOKEN}", server
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)
        hub.close()
