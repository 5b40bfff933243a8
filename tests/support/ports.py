"""TCP ports for daemons of the tests."""

from __future__ import annotations

import os
import random
import socket

#: Below Linux's ephemeral range (32768-), so that no client connection takes a port before its daemon does. Above
#: 10080, which browsers refuse.
#: Those of another pytest worker are others: between our look and a daemon's start nobody takes them.
WORKERS = 16
PORTS = range(10_081 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % WORKERS, 32_000, WORKERS)


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now."""
    chosen: dict[int, socket.socket] = {}
    try:
        while len(chosen) < count:
            port = random.SystemRandom().choice(PORTS)
            if port in chosen:
                continue
            chosen[port] = socket.socket()
            try:
                chosen[port].bind(("127.0.0.1", port))
            except OSError:
                chosen.pop(port).close()
        return list(chosen)
    finally:
        for held in chosen.values():
            held.close()


def listens(port: int) -> bool:
    """Whether somebody accepts connections on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True
