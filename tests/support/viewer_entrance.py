"""How a test enters a viewer as its page does: by the exchange of `viewer.server.exchange`, over `websockets`."""

from __future__ import annotations

import json
from typing import Any

from daemons import PATIENCE_S

from viewer.server.exchange import nonce, proof


def enter(line: Any, token: str) -> dict[str, Any]:
    """Show the token on the open connection `line`; what the server said of itself."""
    hello = nonce()
    line.send(json.dumps({"hello": hello}))
    said: dict[str, Any] = json.loads(line.recv(PATIENCE_S))
    assert said["proof"] == proof(token, "server", hello, said["nonce"])
    line.send(json.dumps({"proof": proof(token, "page", hello, said["nonce"])}))
    return said
