"""How bytes get to the other side and back: the system's ssh, paramiko, or a child process."""

from __future__ import annotations

import sys
from shutil import which

from syncd.errors import RemoteError, SyncError, UnreachableError
from syncd.remote import Remote
from syncd.wire.session import Session
from syncd.wire.streams import ChildStream


def open_transport(remote: Remote, *, client: str) -> Session:
    """Connect, and return the session: its other side has answered. A folder that this machine mounts is served by a
    child of ours; another machine is reached by `ssh`, or by paramiko where `ssh` is not installed.

    `client`: how this machine calls itself; where the folder's owner logs in, the inbox there has this name.
    Errors: UnreachableError, HostKeyError, LoginRefusedError, RemoteError, ConfigError.
    """
    if remote.is_local:
        return LocalTransport(remote, client)
    if which("ssh"):
        from syncd.transports.openssh import OpensshTransport

        return OpensshTransport(remote, client)
    from syncd.transports.paramiko import ParamikoTransport

    return ParamikoTransport(remote, client)


class LocalTransport(Session):
    """`remote` has no host: `syncd serve` as a child of ours, the same frames, no ssh."""

    def __init__(self, remote: Remote, client: str) -> None:
        command = [sys.executable, "-P", "-m", "syncd", "serve", "--shared", remote.path]
        try:
            stream = ChildStream(command, _explain_local)
        except OSError as error:
            raise RemoteError("server.no-python", program=sys.executable, why=error.strerror) from error
        super().__init__("local", stream, client, place=remote.path, logins=0)
        self.server_pid = stream.pid


def _explain_local(code: int | None, said: str) -> SyncError:
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
    if code in {0, None} or code < 0:
        return UnreachableError("server.ended", place="this machine", why=last or "it printed nothing")
    return RemoteError("server.not-started", place="this machine", why=last or f"exit code {code}")
