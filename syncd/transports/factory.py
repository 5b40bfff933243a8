"""Which transport brings us to a remote, and why that one."""

from __future__ import annotations

import shutil

from syncd.errors import ConfigError, NoServerError, RemoteError, SecondFactorError, UnreachableError
from syncd.remote import Remote, TransportName
from syncd.wire.transport import Transport

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


def open_transport(
    remote: Remote, which: TransportName = "auto", *, client: str, rsync: bool = True, bwlimit: int = 0
) -> Transport:
    """Connect, and return the transport: its other side has answered. Its `chosen_because` says why it is this one.

    `client`: how this machine calls itself; where the folder's owner logs in, the inbox there has this name. `which`
    auto: what `choose_transport` says; and where our server cannot be started over there, `rsync`, unless it is
    switched off (`rsync` False). `bwlimit`: KiB a second each way, 0 for no limit.
    Errors: UnreachableError, HostKeyError, LoginRefusedError, RemoteError, ConfigError.
    """
    if which == "rsync" and not rsync:
        raise ConfigError("rsync is switched off (--no-rsync, or `syncd setup --no-rsync`): choose another --transport")
    if which == "auto":
        return _automatic(remote, client, rsync=rsync, bwlimit=bwlimit)
    if (which == "local") != remote.is_local:
        words = "is a folder of this machine" if remote.is_local else "is on another machine"
        raise ConfigError(f"{remote} {words}: --transport {which} cannot bring you there; leave it away")
    return _because("it was asked for", _opened(remote, which, client, bwlimit))


def _automatic(remote: Remote, client: str, *, rsync: bool, bwlimit: int) -> Transport:
    chosen = choose_transport(remote)

    def best() -> Transport:
        return _because(_REASONS[chosen], _opened(remote, chosen, client, bwlimit))

    try:
        return best()
    except NoServerError as error:
        if not (rsync and chosen == "openssh" and shutil.which("rsync")):  # rsync goes through ssh
            raise
        transport = _because(str(error), _by_rsync(remote, client, bwlimit, error))
        transport.better = best
        return transport


def _by_rsync(remote: Remote, client: str, bwlimit: int, why: NoServerError) -> Transport:
    """What is left without our server. Errors: as above; where rsync cannot either, what both said."""
    from syncd.transports.rsync import RsyncTransport  # noqa: PLC0415 - each brings its own imports

    transport: RsyncTransport | None = None
    try:
        transport = RsyncTransport(remote, client, bwlimit)
        transport.probe()
    except BaseException as error:
        if transport is not None:
            transport.close()
        if isinstance(error, (RemoteError, SecondFactorError, UnreachableError)):
            raise RemoteError(f"{why}; and by rsync: {error}") from error
        raise
    return transport


def _because(why: str, transport: Transport) -> Transport:
    transport.chosen_because = why
    return transport


def _opened(remote: Remote, which: TransportName, client: str, bwlimit: int) -> Transport:
    if which == "local":
        from syncd.transports.local import LocalTransport  # noqa: PLC0415 - each brings its own imports

        return LocalTransport(remote, client, bwlimit)
    if which == "openssh":
        from syncd.transports.openssh import OpensshTransport  # noqa: PLC0415 - see above

        return OpensshTransport(remote, client, bwlimit)
    if which == "paramiko":
        from syncd.transports.paramiko import ParamikoTransport  # noqa: PLC0415 - half a second of imports

        return ParamikoTransport(remote, client, bwlimit)
    from syncd.transports.rsync import RsyncTransport  # noqa: PLC0415 - see above

    return RsyncTransport(remote, client, bwlimit)
