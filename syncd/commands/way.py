"""How a command gets to the other side: its options, what `setup` stored of it, and the connection."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.places import account_name
from syncd.access.settings import MOST_KIB_S, Settings
from syncd.errors import ConfigError
from syncd.remote import Remote, TransportName

if TYPE_CHECKING:
    from syncd.wire.transport import Transport

TransportOption = Annotated[
    TransportName | None,
    typer.Option(
        "--transport",
        help="auto: openssh where `ssh` is installed, else paramiko; rsync where no syncd can be started over there.",
    ),
]
RsyncOption = Annotated[
    bool | None, typer.Option("--rsync/--no-rsync", help="Whether rsync may be used; default: as stored, else yes.")
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--bwlimit", metavar="KIB", min=0, max=MOST_KIB_S, help="KiB a second each way, 16 at least; 0: no limit."
    ),
]

#: With less, one segment of experience takes so long that the other side is taken for dead.
LEAST_KIB_S = 16


@dataclass(frozen=True)
class Way:
    """What the command line says of it; None: as stored."""

    transport: TransportName | None = None
    rsync: bool | None = None
    bwlimit: int | None = None

    def over(self, settings: Settings) -> Settings:
        """`settings` with what was said here in its place. Errors: ConfigError where that contradicts itself."""
        said = {name: value for name, value in vars(self).items() if value is not None}
        merged = settings.model_copy(update=said)
        if not merged.rsync and merged.transport == "rsync":
            raise ConfigError("--transport rsync and --no-rsync together leave no way; give one of them")
        if 0 < merged.bwlimit < LEAST_KIB_S:
            raise ConfigError(f"--bwlimit {merged.bwlimit}: {LEAST_KIB_S} KiB a second at least, or 0 for no limit")
        return merged


def connect(settings: Settings, place: Remote, way: Way) -> Transport:
    """Open the transport that `way` and `settings` want. Errors: as `open_transport`."""
    from syncd.transports.factory import open_transport  # noqa: PLC0415 - `--help` stays quick

    merged = way.over(settings)
    chosen = "auto" if place.is_local and way.transport is None else merged.transport
    client = settings.name or default_name()
    return open_transport(place, chosen, client=client, rsync=merged.rsync, bwlimit=merged.bwlimit)


def default_name() -> str:
    """How this machine calls itself where `setup` stored no name: account and host, made safe as a folder's name."""
    try:
        account = account_name()
    except (OSError, KeyError):  # an account without a name; KeyError before Python 3.13
        account = str(os.getuid())
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{account}-{socket.gethostname().split('.')[0]}").strip("-._")
    return plain[:80] or "laptop"
