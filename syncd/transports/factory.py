"""Which transport brings us to a remote."""

from __future__ import annotations

import shutil

from syncd.access.settings import Remote, TransportName
from syncd.errors import ConfigError
from syncd.transports.base import Transport


def choose(remote: Remote, which: TransportName = "auto") -> TransportName:
    """The transport that `which` means here. auto: `local` for a folder that this machine mounts, else `openssh` where
    `ssh` is on PATH, else `paramiko`.
    """
    if which != "auto":
        return which
    return "local" if remote.is_local else "openssh" if shutil.which("ssh") else "paramiko"


def open_transport(remote: Remote, which: TransportName = "auto", *, client: str) -> Transport:
    """Connect, and return the transport: its other side has answered.

    `client`: how this machine calls itself; where the folder's owner logs in, the inbox there has this name.
    Errors: UnreachableError, HostKeyError, LoginRefusedError, RemoteError, ConfigError.
    """
    which = choose(remote, which)
    if (which == "local") != remote.is_local:
        words = "is a folder of this machine" if remote.is_local else "is on another machine"
        raise ConfigError(f"{remote} {words}: --transport {which} cannot bring you there; leave it away")
    if which == "local":
        from syncd.transports.local import LocalTransport  # noqa: PLC0415 - each brings its own imports

        return LocalTransport(remote, client)
    if which == "openssh":
        from syncd.transports.openssh import OpensshTransport  # noqa: PLC0415 - see above

        return OpensshTransport(remote, client)
    if which == "paramiko":
        from syncd.transports.paramiko import ParamikoTransport  # noqa: PLC0415 - half a second of imports

        return ParamikoTransport(remote, client)
    from syncd.transports.rsync import RsyncTransport  # noqa: PLC0415 - see above

    return RsyncTransport(remote, client)
