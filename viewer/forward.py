"""`viewer HOST:RUN`: the page of another machine's viewer at a port of this one, by one `ssh -L`; both ends.

::

    here → there    the page's token and a line feed; then a line feed each `SIGN_S`           on standard input
    there → here    MARK, what is shown, and a line feed, once it is served; logins print before it    on output

The viewer over there serves at a Unix socket in a folder that its account alone enters, to which ssh leads the port
here. It ends when its input ends or falls silent: however the connection ends, nothing is left over there.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import random
import re
import secrets
import select
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorleg.words import printable
from syncd.access.survey import program_line
from syncd.errors import ConfigError, LoginRefusedError, SyncError
from syncd.laptop.backoff import Backoff, made_progress, stops
from syncd.remote import Remote, is_absolute_path, parse_remote
from syncd.transports.openssh import EXIT_NOT_FOUND, EXIT_REFUSED, explain, ssh_words, typed_ssh
from syncd.wire.streams import ChildStream
from viewer.errors import LostError, NotReachable, UsageError, ViewerError
from viewer.live.hub import Hub
from viewer.model import ViewSource
from viewer.server.sockets import LOOPBACK, open_socket, private_folder

MARK = b"anchorleg-viewer-page:"
#: This often the near end says that it lives; after so much silence the far one ends.
SIGN_S, FAR_SILENCE_S = 5.0, 60.0
#: From the start of ssh to the mark: a login node that is slow, and its Python. With a person who types, that one.
GREETING_WITHIN_S, TYPING_WITHIN_S = 60.0, 300.0
#: For the page's first byte through the tunnel.
ANSWER_WITHIN_S = 20.0
#: Of what a login prints before the mark.
MOST_BEFORE = 256 * 1024
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{43}\n")
_PREFIX = "viewer: "
#: The identifier behind an error's sentence.
_BRACKETS = re.compile(r" \[[a-z.-]+\]$")


@dataclass(frozen=True)
class FarViewer:
    """`remote.path`: what it shows; `words`: its options; `command`: its absolute path, None: it is looked for."""

    remote: Remote
    words: tuple[str, ...]
    command: str | None

    @property
    def place(self) -> str:
        """The machine, as a person would write it."""
        return self.remote.account

    @contextlib.contextmanager
    def started(self, port: int, *, asks: bool) -> Iterator[ChildStream]:
        """It, and the tunnel from `port` here; both end with the block. Errors: NotReachable without an `ssh`."""
        at = f"/tmp/anchorleg-viewer-{secrets.token_hex(16)}/page"  # noqa: S108 - made 0700 over there, or refused
        words = ["--forwarded", at, *self.words, "--", self.remote.path]
        line = shlex.join([self.command, *words]) if self.command else program_line("viewer", self.remote.path, words)
        ssh, tunnel = ssh_words(self.remote, asks=asks, forwards=True), ["-L", f"{LOOPBACK}:{port}:{at}"]
        typed = typed_ssh(self.remote)
        try:
            stream = ChildStream(
                [*ssh, *tunnel, "--", self.remote.account, line],
                lambda code, said: explain(self.place, code, said, _explain, typed=typed),
                asks=asks,
            )
        except OSError as error:
            raise NotReachable("remote.no-ssh", why=error.strerror) from None
        try:
            yield stream
        finally:
            stream.close()
            # A connection of the user's own that ours went through (ControlMaster) would keep the port.
            asked = [*ssh, "-O", "cancel", *tunnel, "--", self.remote.account]
            with contextlib.suppress(OSError), contextlib.closing(ChildStream(asked, _never)) as said:
                while said.read(SIGN_S):
                    pass


def far_viewer(text: str, words: Sequence[str], command: str | None) -> FarViewer:
    """The viewer on the machine of `[user@]host:path` ("host:": its home). Errors: UsageError."""
    if command is not None and not is_absolute_path(command):
        raise UsageError("remote.command-not-absolute", command=command)
    try:
        remote = parse_remote(f"{text}." if text.endswith(":") else text)
    except SyncError as error:
        raise UsageError("remote.bad-address", why=str(error).removesuffix(".")) from None
    beside = posixpath.join(posixpath.dirname(remote.command), "viewer") if remote.command else None
    return FarViewer(remote, tuple(words), command or beside)


def show_far(
    viewer: FarViewer, port: int, token: str, begun: Callable[[str], None], say: Callable[[str], None], *, asks: bool
) -> None:
    """Show the page at `port` until an error that a person must mend, or Ctrl-C. `begun`: called once, with what is
    shown; errors of it pass. `asks`: ssh may ask on the terminal, at the first login only. Errors: ViewerError.
    """
    backoff, was_live, is_lost = Backoff(), False, False
    while True:
        live_at: float | None = None
        try:
            with viewer.started(port, asks=asks) as stream:
                shown = _greeted(viewer, stream, token, TYPING_WITHIN_S if asks else GREETING_WITHIN_S)
                _check_tunnel(viewer, port)
                if not was_live:
                    begun(shown)
                if is_lost:
                    say(f"{viewer.place} is reachable again.")
                asks, was_live, is_lost, live_at = False, True, False, time.monotonic()
                _keep(stream)
        except LostError as error:
            if not was_live:
                raise
            lost: Exception = error
        except SyncError as error:
            if not was_live or stops(error, was_live=True):
                raise _told(error, was_live=was_live) from None
            lost = error
        if not is_lost:
            say(f"{str(lost).removesuffix('.')}; trying again. The page reconnects by itself.")
        is_lost = True
        lived_s = time.monotonic() - live_at if live_at is not None else 0.0
        backoff = backoff.progressed() if made_progress(lived_s=lived_s, moved=0) else backoff
        time.sleep(backoff.delay_s(random.random()))
        backoff = backoff.failed()


def _greeted(viewer: FarViewer, stream: ChildStream, token: str, patience_s: float) -> str:
    """What the viewer over there shows, once it serves. Errors: SyncError, NotReachable."""
    said, deadline = b"", time.monotonic() + patience_s
    with contextlib.suppress(OSError):  # why is read below
        stream.write(f"{token}\n".encode(), patience_s)
    while time.monotonic() < deadline:
        data = stream.read(1.0)
        if data == b"":
            raise stream.why()
        said += data or b""
        _, mark, rest = said.partition(MARK)
        if mark and b"\n" in rest:
            return printable(rest.partition(b"\n")[0].decode(errors="replace"), 1000)
        if len(said) > MOST_BEFORE:
            raise NotReachable("remote.other-program", place=viewer.place)
    raise LostError("remote.silent", place=viewer.place, limit_s=patience_s)


def _check_tunnel(viewer: FarViewer, port: int) -> None:
    """Errors: NotReachable where nothing comes through."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), ANSWER_WITHIN_S) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = sock.recv(16)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise NotReachable("remote.no-tunnel", place=viewer.place)


def _keep(stream: ChildStream) -> None:
    """Say that we live, until the connection is over. Errors: SyncError, NotReachable."""
    try:
        while stream.read(SIGN_S) != b"":
            stream.write(b"\n", 3 * SIGN_S)
    except OSError:
        pass  # why is known to ssh
    raise stream.why()


def _explain(place: str, code: int, lines: Sequence[str]) -> Any:
    """The error that an end of the command over there means. `lines`: what it said on stderr."""
    said = next((line for line in reversed(lines) if line.startswith(_PREFIX)), "").removeprefix(_PREFIX)[:600]
    last = lines[-1][:600] if lines else f"exit code {code}"
    if code < 0:
        return LostError("remote.ssh-ended", place=place, signal=-code)
    if any("No such option" in line for line in lines):
        return NotReachable("remote.older", place=place)
    if said and 0 < code < EXIT_REFUSED:
        error = NotReachable("remote.says", place=place, why=_BRACKETS.sub("", said).removesuffix("."))
        error.exit_code = code  # its own one is handed on
        return error
    if code == EXIT_NOT_FOUND:
        return NotReachable("remote.no-viewer", place=place, why=last)
    if code == EXIT_REFUSED:
        return NotReachable("remote.not-allowed", place=place, why=last)
    if code == 0 or code > EXIT_NOT_FOUND:
        return LostError("remote.ended", place=place, why=last)
    return NotReachable("remote.not-started", place=place, why=last)


def _never(_code: int | None, _said: str) -> Any:
    """Of a command whose end nobody asks after."""


def _told(error: SyncError, *, was_live: bool) -> ViewerError:
    """With the code that `viewer` ends with. `was_live`: it had gone well before."""
    if isinstance(error, ConfigError):
        return UsageError("remote.bad-address", why=str(error).removesuffix("."))
    if was_live and isinstance(error, LoginRefusedError):
        return NotReachable("remote.login-again", why=str(error).removesuffix("."))
    return NotReachable("remote.ssh-failed", why=str(error).removesuffix("."))


def serve_forwarded(source: ViewSource, hub: Hub, at: Path, *, silence_s: float = FAR_SILENCE_S) -> None:
    """The far end: serve at the socket `at`, whose folder is made for it, until standard input ends or is silent.

    Errors: StorageError where it cannot be made; ViewerError.
    """
    from viewer.server.serve import make_server

    token = b""
    while not token.endswith(b"\n") and (data := _heard(silence_s)):
        token += data
    if not _TOKEN.fullmatch(token):
        raise UsageError("remote.forwarded-typed")
    with private_folder(at.parent):
        server = make_server(open_socket(at), source, token.decode().strip(), (), hub)

        def end_with_input() -> None:
            while _heard(silence_s):
                pass
            server.shutdown()

        threading.Thread(target=end_with_input, daemon=True).start()
        os.write(1, MARK + printable(source.place, 1000).encode() + b"\n")
        try:
            server.serve_forever()
        finally:
            server.shutdown()


def _heard(silence_s: float) -> bytes:
    """What standard input says next; b"" at its end, or where it says nothing for so long."""
    return os.read(0, 4096) if select.select([0], [], [], silence_s)[0] else b""
