"""Frames through paramiko: for machines without `ssh`. It knows keys and pinned host keys, and no jump hosts."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anchorleg.places import account_name, user_path
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
from syncd.transports.openssh import explain_remote, server_command
from syncd.wire.session import Session
from syncd.wire.streams import LAST_WORDS_S, READ_BYTES, STDERR_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import paramiko

CONNECT_TIMEOUT_S = 10.0
#: Measured: 2 MiB, 8 MiB and more are alike for a channel, and 2 GiB makes it many times slower.
WINDOW_BYTES = 8 * 1024 * 1024
#: paramiko's thread looks this often whether it was closed: its own tenth of a second costs more than all the rest.
_LOOK_EVERY_S = 1.0
#: paramiko would run its program through a library that reads our standard input.
_RUNS_PROGRAMS = re.compile(r"^\s*match\b.*\bexec\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class SshTarget:
    """Where and as whom to connect, after ~/.ssh/config was asked. `key` None: the agent, then the usual files."""

    host: str
    port: int
    user: str
    key: Path | None
    known_hosts: tuple[Path, ...]


class ParamikoTransport(Session):
    """One channel of paramiko's."""

    def __init__(self, remote: Remote, client: str) -> None:
        place = remote.host or ""
        super().__init__("paramiko", _Channel(remote, place), client, place=place, logins=1)


def target_of(remote: Remote) -> SshTarget:
    """What `remote` and the ssh config say. Errors: RemoteError where it wants what paramiko cannot; ConfigError."""
    import paramiko

    path = remote.ssh_config or user_path("~/.ssh/config")
    host = remote.host or ""
    port = 22
    found: dict[str, str | list[str]] = {}
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
            if _RUNS_PROGRAMS.search(text):
                raise RemoteError("paramiko.match-exec", path=path)
            found = dict(paramiko.SSHConfig.from_text(text).lookup(host))
            port = int(str(found.get("port", port)))
        except (paramiko.SSHException, OSError, ValueError) as error:
            raise ConfigError("paramiko.bad-config", path=path, why=error) from error
    for name in ("proxyjump", "proxycommand"):
        if str(found.get(name) or "none").lower() != "none":
            raise RemoteError("paramiko.proxy", path=path, host=host, option=name)
    identities = [user_path(str(name)) for name in found.get("identityfile", [])]
    stated = str(found.get("userknownhostsfile", "~/.ssh/known_hosts")).split()
    files = [*([remote.known_hosts] if remote.known_hosts else []), *(user_path(name) for name in stated)]
    return SshTarget(
        host=str(found.get("hostname", host)),
        port=remote.port or port,
        user=remote.user or str(found.get("user", account_name())),
        key=remote.key or next((path for path in identities if path.is_file()), None),
        known_hosts=tuple(path for path in files if path.is_file()),
    )


class _Channel:
    """A `Stream` over one paramiko channel."""

    def __init__(self, remote: Remote, place: str) -> None:
        import paramiko

        self._place = place
        self._said = bytearray()
        self._closing = threading.Event()
        self._client = connect(target_of(remote), place)
        try:
            transport = self._client.get_transport()
            if transport is None:
                raise UnreachableError("connection.broke", place=place, why="after the login")
            self._channel = transport.open_session(window_size=WINDOW_BYTES, timeout=CONNECT_TIMEOUT_S)
            self._channel.settimeout(CONNECT_TIMEOUT_S)
            self._channel.exec_command(server_command(remote))
        except (OSError, EOFError, paramiko.SSHException) as error:
            self._client.close()
            raise UnreachableError("paramiko.no-channel", place=place, why=error) from error

    def read(self, timeout_s: float) -> bytes | None:
        """See `Stream`."""
        self._hear()
        self._channel.settimeout(timeout_s)  # of writes under way as well: they count what they waited themselves
        try:
            with _as_oserror():
                return bytes(self._channel.recv(READ_BYTES))
        except TimeoutError:
            return b"" if self._closing.is_set() else None

    def write(self, data: bytes, timeout_s: float) -> None:
        """See `Stream`."""
        rest = data
        moved = time.monotonic()
        while rest:
            try:
                with _as_oserror():
                    rest = rest[self._channel.send(rest) :]
                moved = time.monotonic()
            except TimeoutError:
                if time.monotonic() - moved >= timeout_s:
                    raise

    def why(self) -> SyncError:
        """See `Stream`."""
        channel = self._channel
        if not channel.status_event.wait(LAST_WORDS_S) or channel.exit_status < 0:
            return UnreachableError("connection.broke", place=self._place, why="the server gave no exit code")
        self._hear()
        said = self._said.decode(errors="replace")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return explain_remote(self._place, channel.exit_status, lines)

    def close(self) -> None:
        """See `Stream`."""
        self._closing.set()
        with contextlib.suppress(OSError, EOFError):
            if (transport := self._client.get_transport()) is not None:
                transport.sock.shutdown(socket.SHUT_RDWR)  # its thread sees that at once
        with contextlib.suppress(OSError, EOFError):
            self._client.close()

    def _hear(self) -> None:
        """Take what the other side said on stderr: unread, it would fill the window."""
        while self._channel.recv_stderr_ready():
            self._said += self._channel.recv_stderr(4096)
            del self._said[:-STDERR_BYTES]


@contextlib.contextmanager
def _as_oserror() -> Iterator[None]:
    """A socket that broke between two of paramiko's looks at it is an `EOFError` there (`Packetizer.write_all`)."""
    import paramiko

    try:
        yield
    except (EOFError, paramiko.SSHException) as error:
        raise ConnectionResetError(f"the connection broke ({error!r})") from error


def connect(target: SshTarget, place: str) -> paramiko.SSHClient:
    """Log in, with one key and one try; the host key must be known. Errors: as `open_transport`."""
    import paramiko

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it logs tracebacks of what we put into words
    client = paramiko.SSHClient()
    for path in target.known_hosts:
        with contextlib.suppress(OSError, paramiko.SSHException):
            client.load_host_keys(str(path))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        client.connect(
            target.host,
            target.port,
            target.user,
            key_filename=str(target.key) if target.key else None,
            allow_agent=target.key is None,
            look_for_keys=target.key is None,
            sock=_socket(target.host, target.port),
            banner_timeout=CONNECT_TIMEOUT_S,
            auth_timeout=CONNECT_TIMEOUT_S,
            transport_factory=_transport,
        )
    except Exception as error:
        client.close()
        raise _explain(error, place, target) from error
    return client


def _socket(host: str, port: int) -> socket.socket:
    """Without TCP_NODELAY, which paramiko never sets, a megabyte takes 48 ms in place of 9."""
    sock = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def _transport(sock: socket.socket, **settings: object) -> paramiko.Transport:
    import paramiko

    transport = paramiko.Transport(sock, default_window_size=WINDOW_BYTES, **settings)
    sock.settimeout(_LOOK_EVERY_S)
    transport.auth_interactive_dumb = _answer_nothing
    return transport


def _answer_nothing(*_: object) -> None:
    """In the place of paramiko's own, which prints what a site asks for beside the key, and reads our standard input.

    Errors: that it asks.
    """
    import paramiko

    raise paramiko.BadAuthenticationType("it asks for more than a key", [])


def _words_of(error: Exception) -> str:
    """Some errors say nothing of themselves: an `EOFError`, say. Those of the system begin with a number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or ("it closed the connection" if isinstance(error, EOFError) else type(error).__name__)


def _explain(error: Exception, place: str, target: SshTarget) -> SyncError:
    import paramiko

    match error:
        case paramiko.BadHostKeyException():
            return HostKeyError("host.not-pinned", place=place)
        case paramiko.PasswordRequiredException():
            return LoginRefusedError("login.passphrase", key=target.key)
        case paramiko.BadAuthenticationType() if "publickey" not in error.allowed_types:
            return SecondFactorError("login.no-answers", place=place)
        case paramiko.AuthenticationException():
            return LoginRefusedError("login.key-refused", place=place)
        case socket.gaierror():
            return UnreachableError("connection.unknown-host", host=place)
        case ConnectionRefusedError():
            return UnreachableError("connection.port-closed", place=place)
        case paramiko.SSHException() if "known_hosts" in str(error):
            return HostKeyError("host.unknown", place=place, ssh=f"ssh {place}")
        case paramiko.SSHException() | OSError() | EOFError():
            return UnreachableError("connection.failed", place=place, why=_words_of(error))
        case _:
            return RemoteError("paramiko.failed", place=place, why=_words_of(error))
