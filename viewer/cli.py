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
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewer.errors import StorageError, UsageError, ViewerError

if TYPE_CHECKING:
    import socket

    from viewer.live.hub import Hub
    from viewer.sources.base import ViewSource


#: What the older guide calls `stream_port`.
PORT = 9999
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
        from importlib.metadata import version as installed  # noqa: PLC0415

        print(f"anchorleg {installed('anchorleg')}")
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
    from viewer.sources.found import find_source  # noqa: PLC0415

    if port is not None and socket_at is not None:
        raise UsageError("give either --port or --socket, not both.")
    at_once = as_json or headless or terminal
    source = find_source(what, pacer=Pacer(look_s=NO_END) if at_once else None)
    if as_json:
        from viewer.model import ViewChoice  # noqa: PLC0415

        print(json.dumps(source.look(ViewChoice(), time.time()).model_dump(), indent=2, allow_nan=False))
    else:
        hub = make_hub(top_k, width, height)
        try:
            if headless or terminal:
                print_lines(source, hub, draws=terminal)
            else:
                serve_page(source, port, socket_at, tuple(allow_host or ()), hub=hub, no_open=no_open)
        finally:
            hub.close()


@export_app.command()
def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; it ends in .html.")],
    what: WhatArgument = None,
    no_episode: Annotated[bool, typer.Option("--no-episode", help="Without an agent at play.")] = False,
) -> None:
    """Write the page of a run as one file, which opens in any browser without a server.

    Where the trainer is installed, and nobody else works here, one episode of the best policy is played for it.
    """
    from anchorleg.words import sized  # noqa: PLC0415 - as above
    from viewer.export import export as write  # noqa: PLC0415
    from viewer.live.recording import record  # noqa: PLC0415
    from viewer.pacing import NO_END, Pacer  # noqa: PLC0415
    from viewer.sources.found import find_source  # noqa: PLC0415

    why_not = "" if no_episode else why_not_here()
    recorder = None if no_episode or why_not else record
    if recorder is not None:
        print("playing one episode for it, which takes some seconds; --no-episode leaves it out", flush=True)
    done = write(find_source(what, pacer=Pacer(look_s=NO_END)), "", out, time.time(), recorder)
    share = f", {sized(done.of_episode)} of it an episode" if done.of_episode else ""
    print(f"{out}: {sized(done.size)}{share}; open it in a browser, or send it to somebody")
    if words := why_not or done.why_none:
        print(f"it has no agent at play: {words}")


def make_hub(top_k: int | None, width: int, height: int) -> Hub:
    """Of the agents. Who it made closes it. Nobody plays on a machine that others work on."""
    from viewer.live.hub import Hub, HubSettings  # noqa: PLC0415 - as above

    return Hub(HubSettings(top_k, width, height, can_play=not why_not_here()))


def why_not_here() -> str:
    """Why this machine plays no agents itself, as the end of a sentence; "": it may."""
    from viewer.live.player import can_play  # noqa: PLC0415 - as above
    from viewer.server.place import is_shared_machine  # noqa: PLC0415

    if is_shared_machine(os.environ, sys.platform, shutil.which):
        return "others may work on this machine, so nothing is played here; export it on your laptop"
    return "" if can_play() else "the trainer is not installed here (`pip install '.[trainer]'`)"


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
    from viewer.server.place import address, how_to_get_there, is_shared_machine  # noqa: PLC0415
    from viewer.server.private import load_token  # noqa: PLC0415
    from viewer.server.serve import make_server, open_port  # noqa: PLC0415

    secret = load_token()
    shared = is_shared_machine(os.environ, sys.platform, shutil.which)
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
            lines = [url, *(["Others of this machine reach this port; --socket keeps them out."] if shared else [])]
        server = make_server(sock, source, token, allowed_hosts, hub)
        print(f"{source.place}: Ctrl-C ends the page, and nothing else.", *lines, sep="\n", flush=True)
        if url and not shared and not no_open and _has_display():
            _open_browser(url)
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
        finally:
            server.shutdown()


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


def _open_browser(url: str) -> None:
    import webbrowser  # noqa: PLC0415 - as above

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
