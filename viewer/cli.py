"""The `viewer` command. Exit codes: see `viewer.errors`.

`viewer export …` is a command of its own; everything else names what is to be shown.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.cli import VersionOption, one_command
from anchorleg.output import Waiting, end_with_error, ending_well, words_of
from viewer import showing
from viewer.errors import StorageError, UsageError, ViewerError

if TYPE_CHECKING:
    from viewer.live.hub import Hub


_WHAT = "Run name or id, run folder, folder of runs, mirror, or HOST:PATH. Default: runs of this folder, or account."
WhatArgument = Annotated[str | None, typer.Argument(help=_WHAT)]


def show(
    what: WhatArgument = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help=f"Port on 127.0.0.1. Default: the run's stream_port, or {showing.PORT}."),
    ] = None,
    socket_at: Annotated[
        str | None, typer.Option("--socket", help="Unix socket instead of a port. auto: its usual place.")
    ] = None,
    headless: Annotated[
        bool, typer.Option("--headless", help="Print a line per slot, and one per agent and second, until Ctrl-C.")
    ] = False,
    top_k: Annotated[
        int | None, typer.Option(min=1, max=4, help="Number shown. Default: the run's stream_top_k, or 2.")
    ] = None,
    width: Annotated[int, typer.Option(min=120, max=2000, help="Width of a picture.")] = 480,
    height: Annotated[int, typer.Option(min=90, max=2000, help="Height of a picture.")] = 360,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address without opening a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the present state as JSON and exit.")] = False,
    forwarded: Annotated[str | None, typer.Option("--forwarded", metavar="SOCKET", hidden=True)] = None,
    remote_command: Annotated[str | None, typer.Option(help="Absolute path of viewer on HOST, if not found.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Name of a gateway to the page. Repeat for more.")
    ] = None,
    _version: VersionOption = False,
) -> None:
    """Show a run on one page in your browser: slots, jobs, curves and agents at play.

    Ctrl-C closes the page, and the jobs go on: the viewer only reads. `viewer export RUN --out page.html` writes the
    page as one file.
    """
    from viewer.pacing import NO_END, Pacer
    from viewer.sources.found import find_source, is_elsewhere

    if port is not None and socket_at is not None:
        raise UsageError("command.port-and-socket")
    at_once = as_json or headless
    if what is not None and is_elsewhere(what):
        if at_once or forwarded or socket_at is not None or allow_host:
            raise UsageError("remote.only-page", what=what)
        words = ["--width", str(width), "--height", str(height)]
        words += ["--top-k", str(top_k)] if top_k is not None else []
        showing.watch_from_here(what, words, remote_command, port, no_open=no_open)
        return
    if remote_command is not None:
        raise UsageError("remote.command-alone")
    source = find_source(what, pacer=Pacer(look_s=NO_END) if at_once else None)
    if as_json:
        from viewer.model import ViewChoice

        print(json.dumps(source.look(ViewChoice(), time.time()).model_dump(mode="json"), indent=2, allow_nan=False))
    else:
        hub = make_hub(top_k, width, height)
        try:
            if headless:
                showing.print_lines(source, hub)
            elif forwarded is not None:
                showing.serve_forwarded(source, hub, forwarded)
            else:
                showing.serve_page(source, port, socket_at, tuple(allow_host or ()), hub=hub, no_open=no_open)
        finally:
            hub.close()


def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="An .html file to write.")],
    what: WhatArgument = None,
) -> None:
    """Write the page of a run as one HTML file. It opens in any browser, without a server."""
    from anchorleg.words import sized
    from viewer.export import export as write
    from viewer.pacing import NO_END, Pacer
    from viewer.sources.found import find_source

    with Waiting(f"writing {out}"):
        size = write(find_source(what, pacer=Pacer(look_s=NO_END)), "", out, time.time())
    print(f"{out}: {sized(size)}; open it in a browser, or send it to somebody")


app, export_app = one_command(show), one_command(export)


def make_hub(top_k: int | None, width: int, height: int) -> Hub:
    """Of the agents. Who it made closes it."""
    from viewer.live.hub import Hub, HubSettings

    return Hub(HubSettings(top_k, width, height))


def main(act: Callable[[], object] | None = None) -> None:
    """Entry point: every known error becomes one sentence and its exit code."""
    if act is None:
        is_export = sys.argv[1:2] == ["export"]
        if is_export:
            del sys.argv[1]
        act = (lambda: export_app(prog_name="viewer export")) if is_export else app
    from orchestrator.errors import AnchorlegError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name may be no text
    showing.end_at_signals()
    try:
        ending_well(act)
    except (ViewerError, AnchorlegError) as error:
        end_with_error("viewer", error, error.exit_code)
    except OSError as error:
        end_with_error("viewer", f"{words_of(error)}.", StorageError.exit_code)
    except KeyboardInterrupt:
        return
