"""Which transport brings us to a remote, and why that one; and the one to a folder that this machine mounts."""

from __future__ import annotations

import shutil
import sys

from syncd.errors import ConfigError, RemoteError, SyncError, UnreachableError
from syncd.remote import Remote, TransportName
from syncd.wire.session import Session
from syncd.wire.streams import ChildStream

#: Why `choose_transport` chose it.
_REASONS: dict[TransportName, str] = {
    "local": "this machine has the folder",
    "openssh": "ssh is installed here",
    "paramiko": "there is no ssh here",
}


def choose_transport(remote: Remote, which: TransportName = "auto") -> TransportName:
    """The transport that `which` means here, before anything was tried. auto: `local` for a folder that this machine
    mounts, else `openssh` where `ssh` is on PATH, else `paramiko`.
    """
    if which != "auto":
        return which
    return "local" if remote.is_local else "openssh" if shutil.which("ssh") else "paramiko"


def open_transport(remote: Remote, which: TransportName = "auto", *, client: str, bwlimit: int = 0) -> Session:
    """Connect, and return the transport: its other side has answered. Its `chosen_because` says why it is this one.

    `client`: how this machine calls itself; where the folder's owner logs in, the inbox there has this name.
    `bwlimit`: KiB a second each way, 0 for no limit.
    Errors: UnreachableError, HostKeyError, LoginRefusedError, RemoteError, ConfigError.
    """
    chosen = choose_transport(remote, which)
    if (chosen == "local") != remote.is_local:
        raise ConfigError(
            "transport.to-this-machine" if remote.is_local else "transport.to-another-machine",
            remote=remote, transport=which,
        )  # fmt: skip
    transport = _opened(remote, chosen, client, bwlimit)
    transport.chosen_because = _REASONS[chosen] if which == "auto" else "it was asked for"
    return transport


def _opened(remote: Remote, which: TransportName, client: str, bwlimit: int) -> Session:
    if which == "local":
        return LocalTransport(remote, client, bwlimit)
    if which == "openssh":
        from syncd.transports.openssh import OpensshTransport

        return OpensshTransport(remote, client, bwlimit)
    from syncd.transports.paramiko import ParamikoTransport

    return ParamikoTransport(remote, client, bwlimit)


class LocalTransport(Session):
    """`remote` has no host: `syncd serve` as a child of ours, the same frames, no ssh."""

    def __init__(self, remote: Remote, client: str, bwlimit: int = 0) -> None:
        command = [sys.executable, "-P", "-m", "syncd", "serve", "--shared", remote.path]
        try:
            stream = ChildStream(command, _explain_local)
        except OSError as error:
            raise RemoteError("server.no-python", program=sys.executable, why=error.strerror) from error
        super().__init__("local", stream, client, place=remote.path, logins=0, bwlimit=bwlimit)
        self.server_pid = stream.pid


def _explain_local(code: int | None, said: str) -> SyncError:
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
    if code in {0, None} or code < 0:
        return UnreachableError("server.ended", place="this machine", why=last or "it said nothing")
    return RemoteError("server.not-started", place="this machine", why=last or f"exit code {code}")
