"""The `viewer` command. Exit codes: see `viewer.errors`.

`viewer export …` is a command of its own; everything else names what is to be shown.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewer.errors import StorageError, UsageError, ViewerError

if TYPE_CHECKING:
    import socket

    from viewer.bridge.frames import Greeting
    from viewer.live.hub import Hub
    from viewer.sources.base import ViewSource


#: What the older guide calls `stream_port`.
PORT = 9999
#: What who opens a port is told on a machine that others use, too.
REACHED = "Others of this machine reach this port"
#: Between two rounds of lines.
LINES_EVERY_S = 5.0

_SETTINGS = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, context_settings=_SETTINGS
)
export_app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, context_settings=_SETTINGS
)

_WHAT = "A run's name or id, a run folder, a folder of runs, or a laptop's mirror. Default: what is here."
WhatArgument = Annotated[str | None, typer.Argument(metavar="[RUN | DIR | HOST:PATH]", help=_WHAT)]


def version(value: bool) -> None:
    """Print the version and end."""
    if value:
        print(f"anchorleg {_own_version()}")
        raise typer.Exit


@app.command()
def show(
    what: WhatArgument = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help=f"Port on 127.0.0.1; default: the run's stream_port, or {PORT}."),
    ] = None,
    socket_at: Annotated[
        str | None,
        typer.Option("--socket", metavar="PATH", help="A Unix socket in place of a port; `auto`: where it usually is."),
    ] = None,
    headless: Annotated[
        bool, typer.Option("--headless", help="No page: a line for each slot, and one a second for each agent at play.")
    ] = False,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="No page: the same, with pictures of agents where they send any.")
    ] = False,
    top_k: Annotated[
        int | None, typer.Option(min=1, max=4, help="How many agents are shown; default: the run's stream_top_k, or 2.")
    ] = None,
    width: Annotated[int, typer.Option(min=120, max=2000, help="Of an agent's picture on the page, in pixels.")] = 480,
    height: Annotated[int, typer.Option(min=90, max=2000, help="The same.")] = 360,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, open no browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one picture as JSON and end.")] = False,
    stdio: Annotated[
        bool,
        typer.Option("--stdio", help="Serve on standard input and output, as `viewer HOST:PATH` wants it."),
    ] = False,
    remote_command: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="With HOST:PATH: absolute path of viewer over there, if it is not found."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name under which a gateway of your site shows the page. May be repeated."),
    ] = None,
    _version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Version.")] = False,
) -> None:
    """Show on one page in your browser what a training does: slots, jobs, curves, agents at play. Ctrl-C ends it.

    It reads, and changes nothing; agents at play are asked for while somebody looks. `viewer export RUN --out
    page.html` writes the page as one file.
    """
    from viewer.pacing import NO_END, Pacer  # noqa: PLC0415 - `--help` must stay quick
    from viewer.sources.found import find_source, is_elsewhere  # noqa: PLC0415

    if (port is not None) + (socket_at is not None) + stdio > 1:
        raise UsageError("give one of --port, --socket and --stdio.")
    at_once = as_json or headless or terminal
    if what is not None and is_elsewhere(what):
        if at_once or stdio or socket_at is not None or allow_host:
            raise UsageError(f"{what} is shown on a page at a port of this machine: the other ways work over there.")
        words = ["--width", str(width), "--height", str(height)]
        words += ["--top-k", str(top_k)] if top_k is not None else []
        watch_from_here(what, words, remote_command, port, no_open=no_open)
        return
    if remote_command is not None:
        raise UsageError("--remote-command goes with HOST:PATH: name what is on another machine.")
    pipes = own_pipes() if stdio else None
    source = find_source(what, pacer=Pacer(look_s=NO_END) if at_once else None)
    if as_json:
        from viewer.model import ViewChoice  # noqa: PLC0415

        print(json.dumps(source.look(ViewChoice(), time.time()).model_dump(), indent=2, allow_nan=False))
    else:
        hub = make_hub(top_k, width, height)
        try:
            if headless or terminal:
                print_lines(source, hub, draws=terminal)
            elif pipes is not None:
                serve_pipes(source, hub, pipes)
            else:
                serve_page(source, port, socket_at, tuple(allow_host or ()), hub=hub, no_open=no_open)
        finally:
            hub.close()


@export_app.command()
def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; it ends in .html.")],
    what: WhatArgument = None,
) -> None:
    """Write the page of a run as one file, which opens in any browser without a server."""
    from anchorleg.words import sized  # noqa: PLC0415 - as above
    from viewer.export import export as write  # noqa: PLC0415
    from viewer.pacing import NO_END, Pacer  # noqa: PLC0415
    from viewer.sources.found import find_source  # noqa: PLC0415

    size = write(find_source(what, pacer=Pacer(look_s=NO_END)), "", out, time.time())
    print(f"{out}: {sized(size)}; open it in a browser, or send it to somebody")


def make_hub(top_k: int | None, width: int, height: int) -> Hub:
    """Of the agents. Who it made closes it. Nobody plays on a machine that others work on."""
    from viewer.live.hub import Hub, HubSettings  # noqa: PLC0415 - as above
    from viewer.live.player import can_play  # noqa: PLC0415

    return Hub(HubSettings(top_k, width, height, can_play=not _is_shared() and can_play()))


def print_lines(
    source: ViewSource,
    hub: Hub | None = None,
    *,
    draws: bool = False,
    every_s: float = LINES_EVERY_S,
    rounds: int | None = None,
) -> None:
    """Lines until Ctrl-C, or so many `rounds`; what was said already is not said again. Agents of `hub` get a line a
    second each; `draws`: and their pictures.
    """
    from viewer.agentlines import AgentLines  # noqa: PLC0415 - as above
    from viewer.lines import lines_of  # noqa: PLC0415
    from viewer.model import ViewChoice  # noqa: PLC0415

    told: list[str] = []
    with ExitStack() as stack:
        agents = AgentLines(hub, draws=draws) if hub is not None else None
        if agents is not None:
            stack.callback(agents.close)
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        while rounds is None or rounds > 0:
            now = time.time()
            seen = source.look(ViewChoice(), now)
            lines = lines_of(seen, now)
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
    """Serve until Ctrl-C or SIGTERM. Errors: BusyError, StorageError, UsageError."""
    from viewer.server.exchange import token_at  # noqa: PLC0415 - as above
    from viewer.server.place import address, how_to_get_there  # noqa: PLC0415
    from viewer.server.private import load_token  # noqa: PLC0415
    from viewer.server.serve import make_server, open_port  # noqa: PLC0415

    secret = load_token()
    shared = _is_shared()
    url = ""
    with ExitStack() as stack:
        if socket_at is not None or (port is None and shared):
            sock, path = _socket_of(source, socket_at, stack)
            token = token_at(secret, f"socket {path}")
            lines = how_to_get_there(str(path), getpass.getuser(), os.uname().nodename, source.port or PORT, token)
        else:
            sock = open_port((source.port or PORT) if port is None else port)
            at = sock.getsockname()[1]
            token = token_at(secret, f"port {at}")
            url = address(at, token)
            lines = [url, *([f"{REACHED}; --socket keeps them out."] if shared else [])]
        server = make_server(sock, source, token, allowed_hosts, hub)
        print(f"{source.place}: Ctrl-C ends the page, and nothing else.", *lines, sep="\n", flush=True)
        if url and not no_open:
            _open_browser(url)
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
        finally:
            server.shutdown()


def own_pipes() -> tuple[int, int]:
    """See `viewer.bridge.far_end`; before anything is printed. A SIGTERM ends what follows."""
    from viewer.bridge.far_end import own_pipes as taken  # noqa: PLC0415 - as above

    signal.signal(signal.SIGTERM, _interrupt)
    return taken()


def serve_pipes(source: ViewSource, hub: Hub, pipes: tuple[int, int]) -> None:
    """Serve the page to another machine's viewer, until that is gone. Errors: ViewerError."""
    from viewer.bridge.far_end import serve_over  # noqa: PLC0415 - as above
    from viewer.bridge.frames import BRIDGE, Greeting  # noqa: PLC0415
    from viewer.server.serve import make_server  # noqa: PLC0415

    greeting = Greeting(bridge=BRIDGE, version=_own_version(), place=source.place, port=source.port)
    serve_over(*pipes, greeting, lambda door, token: make_server(door, source, token, (), hub))


def watch_from_here(what: str, words: Sequence[str], command: str | None, port: int | None, *, no_open: bool) -> None:
    """Show what the viewer of another machine shows, until Ctrl-C or SIGTERM. `what`: `[user@]host:path`; `words`: for
    that viewer; `command`: where it is. Errors: BusyError, NotReachable, StorageError, UsageError, and its own ones.
    """
    from anchorleg.printable import printable  # noqa: PLC0415 - as above
    from syncd.errors import SyncError  # noqa: PLC0415
    from syncd.far import far_program  # noqa: PLC0415
    from viewer.bridge.near_end import NearEnd, Page  # noqa: PLC0415
    from viewer.bridge.reasons import for_the_user  # noqa: PLC0415
    from viewer.server.exchange import token_at  # noqa: PLC0415
    from viewer.server.place import address  # noqa: PLC0415
    from viewer.server.private import load_token  # noqa: PLC0415
    from viewer.server.serve import open_port  # noqa: PLC0415

    secret = load_token()

    def begin(greeting: Greeting) -> Page:
        sock = open_port((greeting.port or PORT) if port is None else port)
        sock.setblocking(False)
        at = sock.getsockname()[1]
        token = token_at(secret, f"port {at} of {program.place}")  # the other machine learns it, and no other one
        place = printable(f"{program.place}:{greeting.place}")
        lines = [f"{place}: Ctrl-C ends the page, and nothing else.", address(at, token)]
        print(*lines, *([f"{REACHED}."] if _is_shared() else []), sep="\n", flush=True)
        if not no_open:
            _open_browser(address(at, token))
        return Page(sock, token)

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        program = far_program(what, "viewer", command)
    except SyncError as error:
        raise for_the_user(error, was_live=False) from None
    end = NearEnd(program, ("--stdio", *words, "--", program.path), _own_version(), partial(print, flush=True))
    with contextlib.suppress(KeyboardInterrupt):
        end.watch(begin, asks=sys.stdin is not None and sys.stdin.isatty())


def _own_version() -> str:
    from importlib.metadata import version as installed  # noqa: PLC0415

    return installed("anchorleg")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _socket_of(source: ViewSource, socket_at: str | None, stack: ExitStack) -> tuple[socket.socket, Path]:
    from viewer.server.private import alone_in, check_folder, free_socket, leave, socket_path  # noqa: PLC0415
    from viewer.server.serve import open_socket  # noqa: PLC0415

    named = None if socket_at in {None, "auto"} else Path(str(socket_at)).expanduser().absolute()
    path = named or socket_path(Path(source.place).name)
    if named is not None:
        check_folder(named.parent)
    with alone_in(path.parent):
        free_socket(path)
        sock = open_socket(path)
        stack.callback(leave, path, path.lstat().st_ino)
    return sock, path


def _has_display() -> bool:
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _is_shared() -> bool:
    from viewer.server.place import is_shared_machine  # noqa: PLC0415 - as above

    return is_shared_machine(os.environ, sys.platform, shutil.which)


def _open_browser(url: str) -> None:
    """Where somebody sits before this machine."""
    import webbrowser  # noqa: PLC0415 - as above

    if _is_shared() or not _has_display():
        return
    from viewer.server.private import write_signpost  # noqa: PLC0415

    try:
        webbrowser.open(write_signpost(url).as_uri())
    except StorageError as error:
        print(error, flush=True)


def main(act: Callable[[], object] | None = None) -> None:
    """Entry point: every known error becomes one sentence and its exit code."""
    if act is None:
        is_export = sys.argv[1:2] == ["export"]
        if is_export:
            del sys.argv[1]
        act = (lambda: export_app(prog_name="viewer export")) if is_export else app
    from orchestrator.errors import AnchorlegError  # noqa: PLC0415 - `--help` must stay quick

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name may be no text
    try:
        try:
            act()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except (ViewerError, AnchorlegError) as error:
        words, code = str(error), error.exit_code
    except OSError as error:
        words, code = f"{error.filename or 'a file'}: {error.strerror or error}.", StorageError.exit_code
    except KeyboardInterrupt:
        return
    else:
        return
    print(f"viewer: {words}", file=sys.stderr)
    sys.exit(code)
