"""How a command gets to the other side: its options, both folders, what `setup` stored, and the connection."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.places import account_name
from syncd.errors import ConfigError
from syncd.remote import Remote, Settings, load_settings, parse_remote

if TYPE_CHECKING:
    from syncd.wire.session import Session

RemoteArgument = Annotated[str, typer.Argument(help='[user@]host:path, or a folder. Default, or "": from `setup`.')]
FolderArgument = Annotated[str, typer.Argument(help='Mirror on this machine. Default, or "": from `setup`.')]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def places(remote: str, folder: str) -> tuple[Settings, Remote, Path]:
    """The settings, the other side and the mirror. Errors: ConfigError."""
    settings = load_settings()
    place = parse_remote(remote, settings=settings)
    mirror = settings.mirror_at(folder)
    if mirror.exists() and not mirror.is_dir():
        raise ConfigError("mirror.is-a-file", path=mirror)
    theirs = {os.path.realpath(place.path), os.path.realpath(os.path.join(place.path, "shared"))}
    is_the_remote = place.is_local and os.path.realpath(mirror) in theirs
    # A mirror had its state/ before anything was fetched; in a learner's folder we would clear policies away.
    is_a_learners = (mirror / "v1").is_dir() and not (mirror / "state").is_dir()
    if is_the_remote or is_a_learners or _takes_in(mirror / "v1" / "inbox"):
        raise ConfigError("mirror.is-a-runs", path=mirror)
    return settings, place, mirror


def _takes_in(inboxes: Path) -> bool:
    """Whether these are a learner's. In a mirror those of contributors whose agents were watched hold `live` alone."""
    with suppress(OSError):
        return any({*os.listdir(each)} - {"live"} for each in inboxes.iterdir() if each.is_dir())
    return False


def connect(settings: Settings, place: Remote) -> Session:
    """Errors: as `open_transport`."""
    from syncd.transports import open_transport

    return open_transport(place, client=settings.name or default_name())


def default_name() -> str:
    """How this machine calls itself where `setup` stored no name: account and host, made safe as a folder's name."""
    try:
        account = account_name()
    except (OSError, KeyError):  # an account without a name; KeyError before Python 3.13
        account = str(os.getuid())
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{account}-{socket.gethostname().split('.')[0]}").strip("-._")
    return plain[:80] or "laptop"
