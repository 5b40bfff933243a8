"""Frames through the system's `ssh`, with all it brings: ~/.ssh/config, jump hosts, second factors, agents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from syncd.errors import (
    ConfigError,
    HostKeyError,
    LoginRefusedError,
    RemoteError,
    SecondFactorError,
    SyncError,
    UnreachableError,
)
from syncd.remote import Remote
from syncd.wire.protocol import REFUSED_PREFIX
from syncd.wire.session import Session
from syncd.wire.streams import ChildStream

#: ssh's own limit on the connection, and how it notices a dead one: 3 x 5 s, as our own pings do.
_OPTIONS = {
    # Before all others: what follows is newer than some sites' ssh, and ~/.ssh/config may be another machine's, too.
    "IgnoreUnknown": "*",
    "BatchMode": "yes",
    "ConnectionAttempts": "1",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "StrictHostKeyChecking": "yes",
    # Forwarding and commands are none of our business, whatever ~/.ssh/config says.
    "ClearAllForwardings": "yes",
    # One that stays is used, and ours is none: the user's own shells would go through it, and end with it.
    "ControlMaster": "no",
    "RemoteCommand": "none",
    "PermitLocalCommand": "no",
    "Tunnel": "no",
    # A program's pipes and its command, in the foreground.
    "ForkAfterAuthentication": "no",
    "SessionType": "default",
    "StdinNull": "no",
    # Both ask a person in the middle of a connection.
    "AddKeysToAgent": "no",
    "UpdateHostKeys": "no",
    # Its words are what an error is made of.
    "LogLevel": "INFO",
    "LogVerbose": "none",
    "VisualHostKey": "no",
    # ssh's own order of those that ask nobody: a key is refused only where it was shown.
    "PreferredAuthentications": "gssapi-with-mic,hostbased,publickey",
}
#: Those of them by which ssh asks nobody.
_UNASKED = {"BatchMode", "StrictHostKeyChecking", "PreferredAuthentications"}
#: No terminal, no agent, no X.
_FLAGS = ("-T", "-a", "-x")
EXIT_SSH = 255
EXIT_NOT_FOUND = 127
EXIT_REFUSED = 126
#: A forced command that is not ours (rrsync), a shell that cannot, a Python without our packages.
EXIT_FAILED = 1
#: Of ssh's words the error that they mean, of the place, the command that a person goes there by, and the match. First
#: match wins.
_WORDS: tuple[tuple[str, Callable[[str, str, re.Match[str]], SyncError]], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .* has changed",
        lambda place, *_: HostKeyError("host.not-pinned", place=place),
    ),
    (
        r"host key is known for|Host key verification failed|no matching host key type",
        lambda place, ssh, _: HostKeyError("host.unknown", place=place, ssh=ssh),
    ),
    (
        r"Bad configuration option|Bad owner or permissions on|terminating, .* bad configuration",
        lambda _, ssh, __: ConfigError("ssh.own-config", ssh=ssh),
    ),
    (
        r"UNPROTECTED PRIVATE KEY FILE",
        lambda place, *_: LoginRefusedError("key.unprotected", place=place),
    ),
    # Behind a ProxyJump or ProxyCommand ssh knows no address: what is said before that is of the way, not of the place.
    (
        r"(?s)Permission denied \(.*UNKNOWN port",
        lambda place, ssh, _: LoginRefusedError("login.refused-on-the-way", place=place, ssh=ssh),
    ),
    (
        r"UNKNOWN port",
        lambda place, ssh, _: UnreachableError("connection.broke-on-the-way", place=place, ssh=ssh),
    ),
    (
        # What may still be tried, once a key was taken: a key is no more among it.
        r"(?m)^\S+: Permission denied \((?!\S*publickey)([a-z,-]{1,80})\)",
        lambda place, ssh, found: SecondFactorError("login.second-factor", place=place, ssh=ssh, kinds=found[1]),
    ),
    (
        (
            # Lines of ssh itself: a site's banner comes the same way, and may speak of permissions.
            r"(?m)^\S+: Permission denied \(|^Received disconnect from .*: Too many authentication failures|"
            r"^Permissions \d+ for .* are too open"
        ),
        lambda place, *_: LoginRefusedError("login.key-refused", place=place),
    ),
    (
        r"Could not resolve hostname|getaddrinfo \S+:",
        lambda place, *_: UnreachableError("connection.unknown-host", host=place),
    ),
    (
        r"Connection refused",
        lambda place, *_: UnreachableError("connection.port-closed", place=place),
    ),
    (
        r"No route to host|Network is (unreachable|down)|Host is down",
        lambda place, _, found: UnreachableError("connection.failed", place=place, why=found[0]),
    ),
    (
        (
            r"timed out|Timeout, server .* not responding|Connection (closed|reset)|closed by remote host|"
            r"Broken pipe|Connection to .* closed|Software caused connection abort|kex_exchange_identification|"
            r"banner exchange"
        ),
        lambda place, _, found: UnreachableError("connection.broke", place=place, why=found[0]),
    ),
)


class OpensshTransport(Session):
    """One ssh process, one login, for the connection's life."""

    def __init__(self, remote: Remote, client: str) -> None:
        place = remote.host or ""
        try:
            stream = ChildStream(
                ssh_command(remote), lambda code, said: explain(place, code, said, typed=typed_ssh(remote))
            )
        except OSError as error:
            raise RemoteError("ssh.not-started", why=error.strerror) from error
        super().__init__("openssh", stream, client, place=place, logins=1)


def ssh_command(remote: Remote) -> list[str]:
    """The words that start the other side's server."""
    return [*ssh_words(remote), "--", remote.account, server_command(remote)]


def ssh_words(remote: Remote, *, asks: bool = False, forwards: bool = False) -> list[str]:
    """`ssh` and its options, without host and command: for rsync and the viewer as well. `asks`: ssh may ask on the
    terminal, for a password or whether a host key is right. `forwards`: a forwarding follows; those of ~/.ssh/config
    come too then, and end nothing where they fail.
    """
    words = ["ssh", *_FLAGS]
    if remote.ssh_config is not None:
        words += ["-F", str(remote.ssh_config)]
    for name, value in _OPTIONS.items():
        if (asks and name in _UNASKED) or (forwards and name == "ClearAllForwardings"):
            continue
        words += ["-o", f"{name}={value}"]
    if forwards:
        words += ["-o", "ExitOnForwardFailure=no"]
    if remote.known_hosts is not None and remote.known_hosts.is_file():  # else as ~/.ssh/config says
        words += ["-o", f"UserKnownHostsFile={_quoted(remote.known_hosts)} ~/.ssh/known_hosts ~/.ssh/known_hosts2"]
    if remote.key is not None:
        named = f"IdentityFile={_quoted(remote.key)}"  # -i takes the same tokens, and no quotes
        words += ["-o", named, "-o", "IdentitiesOnly=yes", "-o", "PubkeyAuthentication=yes"]
    if remote.port is not None:
        words += ["-p", str(remote.port)]
    return words


def typed_ssh(remote: Remote) -> str:
    """The command by which a person goes there: with the account and the port as we have them, for a connection that
    stays is found by these (%C).
    """
    config = ["-F", str(remote.ssh_config)] if remote.ssh_config is not None else []
    port = ["-p", str(remote.port)] if remote.port is not None else []
    return shlex.join(["ssh", *config, *port, remote.account])


def server_command(remote: Remote) -> str:
    """What the other side's shell is told. The gate of a restricted key reads it too."""
    return f"{shlex.quote(remote.command or 'syncd')} serve --shared {shlex.quote(remote.path)}"


def _quoted(path: Path) -> str:
    """As ssh_config(5) takes a file name with spaces; % begins its tokens."""
    return '"' + str(path).replace("%", "%%") + '"'


def explain(
    place: str,
    code: int | None,
    said: str,
    of_program: Callable[[str, int, Sequence[str]], SyncError] | None = None,
    typed: str | None = None,
) -> SyncError:
    """The error that ssh's exit code and words mean. Pure; the words are those of OpenSSH 8 and 9. `of_program`: what
    the end of the other side's command means; None: of syncd's server. `typed`: what `typed_ssh` says; None: as
    if it were for `place`.
    """
    lines = [line.strip() for line in said.replace("\r", "\n").splitlines() if line.strip()]
    if code in {None, EXIT_SSH}:
        for pattern, meant in _WORDS:
            if found := re.search(pattern, said):
                return meant(place, typed or f"ssh {place}", found)
        return UnreachableError("connection.broke", place=place, why=lines[-1][:300] if lines else "ssh ended")
    return (of_program or explain_remote)(place, code, lines)


def explain_remote(place: str, code: int, lines: Sequence[str]) -> SyncError:
    """The error that the end of the other side's command means. `lines`: what it said on stderr."""
    last = lines[-1][:300] if lines else f"exit code {code}"
    if code == EXIT_NOT_FOUND:
        return RemoteError("server.no-syncd", place=place, why=last)
    if code == EXIT_REFUSED and last.startswith(REFUSED_PREFIX):
        return RemoteError("server.refused-by-gate", place=place, why=last)
    if code == EXIT_REFUSED:
        return RemoteError("server.not-allowed", place=place, why=last)
    if code == 0 or code > EXIT_NOT_FOUND:
        return UnreachableError("server.ended", place=place, why=last)
    if code == EXIT_FAILED:
        return RemoteError("server.failed", place=place, why=last)
    return RemoteError("server.not-started", place=place, why=last)
