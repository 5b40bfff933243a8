"""The ways to show a source: a page at a port or a socket, one of another machine, lines."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anchorleg.places import account_name, user_path
from viewer.errors import StorageError

if TYPE_CHECKING:
    import socket

    from viewer.live.hub import Hub
    from viewer.model import ViewSource

#: What the older guide calls `stream_port`.
PORT = 9999
#: What who opens a port is told on a machine that others use, too.
REACHED = "Other accounts of this machine can reach this port"
LEAVE = "Ctrl-C ends this view; jobs go on."
#: By these a desktop is known.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
#: Between two rounds of lines.
LINES_EVERY_S = 5.0


def print_lines(
    source: ViewSource,
    hub: Hub | None = None,
    *,
    every_s: float = LINES_EVERY_S,
    rounds: int | None = None,
) -> None:
    """Lines until Ctrl-C, or so many `rounds`; what was said already is not said again. Agents of `hub` get a line a
    second each.
    """
    from anchorleg.words import on_one_line
    from viewer.lines import AgentLines, lines_of
    from viewer.model import ViewChoice

    told: list[str] = []
    if sys.stdout.isatty() and rounds is None:
        print(LEAVE)
    with ExitStack() as stack:
        agents = AgentLines(hub) if hub is not None else None
        if agents is not None:
            stack.callback(agents.close)
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        while rounds is None or rounds > 0:
            now = time.time()
            seen = source.look(ViewChoice(), now)
            lines = list(map(on_one_line, lines_of(seen, now)))
            print(
                *(line for line in lines if line not in told), sep="\n", end="\n" if lines != told else "", flush=True
            )
            told, rounds = lines, None if rounds is None else rounds - 1
            if hub is not None:
                hub.tell("", seen)
            if rounds == 0:
                break
            if agents is not None:
                agents.say_for(every_s)
            else:
                time.sleep(every_s)


def serve_page(
    source: ViewSource,
    port: int | None,
    socket_at: str | None,
    allowed_hosts: tuple[str, ...],
    *,
    hub: Hub | None = None,
    no_open: bool,
) -> None:
    """Serve until Ctrl-C. Errors: BusyError, StorageError, UsageError."""
    from viewer.server.serve import make_server
    from viewer.server.sockets import access_token, open_port

    token, shared = access_token(), is_shared()
    url = ""
    with ExitStack() as stack:
        if socket_at is not None or (port is None and shared):
            sock, path = _socket_of(source, socket_at, stack)
            lines = how_to_get_there(str(path), account_name(), os.uname().nodename, source.port or PORT, token)
        else:
            sock = open_port((source.port or PORT) if port is None else port)
            at = sock.getsockname()[1]
            url = address(at, token)
            lines = [url, *([f"{REACHED}; to keep them out, use --socket."] if shared else [])]
        server = make_server(sock, source, token, allowed_hosts, hub)
        print(f"{source.place}: {LEAVE}", *lines, sep="\n", flush=True)
        if url and not no_open:
            _open_browser(url)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
        finally:
            server.shutdown()


def serve_forwarded(source: ViewSource, hub: Hub, at: str) -> None:
    """Serve the page to another machine's viewer, until that is gone. Errors: ViewerError."""
    from viewer.forward import serve_forwarded as serve

    with contextlib.suppress(KeyboardInterrupt):
        serve(source, hub, Path(at))


def watch_from_here(what: str, words: Sequence[str], command: str | None, port: int | None, *, no_open: bool) -> None:
    """Show what the viewer of another machine shows, until Ctrl-C. `what`: `[user@]host:path`; `words`: for that
    viewer; `command`: where it is. Errors: BusyError, NotReachable, StorageError, UsageError, and its own ones.
    """
    from anchorleg.words import printable
    from viewer.forward import far_viewer, show_far
    from viewer.server.sockets import access_token, open_port

    viewer = far_viewer(what, words, command)
    with open_port(PORT if port is None else port) as sock:
        at = sock.getsockname()[1]  # ssh opens it
    token = access_token()  # the other machine learns it

    def begun(shown: str) -> None:
        place = printable(f"{viewer.place}:{shown}")
        lines = [f"{place}: {LEAVE}", address(at, token)]
        print(*lines, *([f"{REACHED}."] if is_shared() else []), sep="\n", flush=True)
        if not no_open:
            _open_browser(address(at, token))

    asks = sys.stdin is not None and sys.stdin.isatty()
    with contextlib.suppress(KeyboardInterrupt):
        show_far(viewer, at, token, begun, partial(print, flush=True), asks=asks)


def end_at_signals() -> None:
    """From here on SIGTERM is a Ctrl-C, and so is a terminal that is closed (SIGHUP), unless `nohup` has us outlive it:
    the socket goes.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)


def _interrupt(*_: object) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a shell that goes sends a second one, into the clearing away
    raise KeyboardInterrupt


def _socket_of(source: ViewSource, socket_at: str | None, stack: ExitStack) -> tuple[socket.socket, Path]:
    from viewer.server.sockets import check_folder, free_socket, open_socket, socket_path

    named = None if socket_at in {None, "auto"} else user_path(str(socket_at)).absolute()
    path = named or socket_path(Path(source.place).name)
    if named is not None:
        check_folder(named.parent)
    free_socket(path)
    sock = open_socket(path)
    stack.callback(path.unlink, missing_ok=True)
    return sock, path


def _has_display() -> bool:
    return sys.platform == "darwin" or any(os.environ.get(name) for name in _DISPLAYS)


def is_shared(
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
    find: Callable[[str], str | None] = shutil.which,
) -> bool:
    """Whether others work here, too, as far as one can tell: nobody sits before it (no display), and somebody logged in
    from elsewhere (`SSH_CONNECTION`) or jobs are submitted from here (`sbatch`). Every account of such a machine
    reaches every port of it. `find`: as `shutil.which`.
    """
    if platform == "darwin" and "SSH_CONNECTION" not in environ:
        return False
    if any(environ.get(name) for name in _DISPLAYS):
        return False
    return bool(environ.get("SSH_CONNECTION")) or find("sbatch") is not None


def address(port: int, token: str) -> str:
    """What a browser opens. A browser keeps what comes after `#` to itself: no server's log has it."""
    return f"http://127.0.0.1:{port}/#{token}"


def how_to_get_there(socket: str, user: str, host: str, port: int, token: str) -> list[str]:
    """What to type on the laptop. `host`: this very one; a pool's common name would lead to another machine."""
    tunnel = f"ssh -o ExitOnForwardFailure=yes -N -L {port}:{shlex.quote(socket)} {user}@{host}"
    return [
        "Only your account can open the page's socket.",
        "On your laptop, type this and leave it running:",
        f"  {tunnel}",
        "and open this address there:",
        f"  {address(port, token)}",
        "If your laptop uses another name for this machine, replace the name after the @.",
    ]


def _open_browser(url: str) -> None:
    """Where somebody sits before this machine."""
    import webbrowser

    if is_shared() or not _has_display():
        return
    from viewer.server.sockets import write_signpost

    try:
        path = write_signpost(url)
        webbrowser.open(path.as_uri())
        print(f"If the browser may not read {path}, open the address above.", flush=True)
    except StorageError as error:
        print(error, flush=True)
