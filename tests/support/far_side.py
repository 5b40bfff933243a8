"""A shared folder on the other side of each transport: the same for a folder of this machine and for a real sshd."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from daemons import PATIENCE_S, _pids, wait_for
from policies import RUN, publish_one
from sshd import Laptop, Sshd, _command

from syncd.remote import Remote
from syncd.store import Manifest, Shared
from syncd.transports import open_transport
from syncd.wire.arrivals import News, Offer
from syncd.wire.session import Session

CLIENT = "anna"


@dataclass
class FarSide:
    """`shared` over there. `server` and `laptop` are None where it is local."""

    shared: Shared
    scratch: Path
    server: Sshd | None
    laptop: Laptop | None

    def remote(self, **changes: object) -> Remote:
        """How to get there."""
        values: dict[str, object] = {"path": str(self.shared.path)}
        if self.server is not None and self.laptop is not None:
            values |= {
                "host": "127.0.0.1",
                "user": self.server.user,
                "port": self.server.port,
                "key": self.laptop.key,
                "known_hosts": self.laptop.known_hosts,
                "ssh_config": self.laptop.config,
                "command": str(Path(sys.executable).parent / "syncd"),
            }
        return Remote.model_validate(values | changes)

    def open(self, **changes: object) -> Session:
        """Connect."""
        return open_transport(self.remote(**changes), client=CLIENT)

    def publish(self, seq: int, *, attempt: int = 1, slot: int = 0, wide: int = 16) -> Manifest:
        """A policy of the run."""
        return publish_one(self.shared, attempt, seq, slot=slot, wide=wide)

    def part(self, name: str = "part") -> Path:
        """Where a fetch puts its file."""
        return self.scratch / name

    def segment(self, seed: int, size: int = 20_000) -> tuple[Path, str, int]:
        """Something to send; the wire does not look into it."""
        data = random.Random(seed).randbytes(size)
        path = self.scratch / hashlib.sha256(data).hexdigest()
        path.write_bytes(data)
        return path, RUN, 0

    def server_pids(self) -> list[int]:
        """The processes of `syncd serve` for this folder."""
        wanted = ("-m syncd serve", "syncd serve")
        found = [pid for pid in _pids() if str(self.shared.path) in (said := _command(pid)) and "ssh " not in said]
        return [pid for pid in found if any(word in _command(pid) for word in wanted) and "python" in _command(pid)]


def of_kind(news: News, kind: str) -> list[Offer]:
    """The offers of one kind."""
    return [offer for offer in news.offers if offer.kind == kind]


def until(transport: Session, wanted: Callable[[News], bool], timeout_s: float = PATIENCE_S) -> News:
    """The first news that are wanted; others are passed over."""
    found: list[News] = []

    def look() -> bool:
        found[:] = [transport.wait(0.5)]
        return wanted(found[0])

    wait_for(look, "such news", timeout_s)
    return found[0]
