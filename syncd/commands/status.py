"""`syncd status`: what is in the mirror, and how the client stands with the other side."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.places import user_path
from anchorleg.words import lines_shown
from syncd.access.settings import load_settings
from syncd.commands.way import FolderArgument
from syncd.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from syncd.laptop.status import MirrorView

#: `--watch` looks this often.
LOOK_EVERY_S = 1.0


def status(
    folder: FolderArgument = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output; with --watch a line each.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking, until Ctrl-C.")] = False,
) -> None:
    """Show what is in the mirror, and how the client stands with the other side."""
    mirror = Path(os.path.abspath(user_path(folder))) if folder is not None else load_settings().mirror
    _look(mirror)  # before anything is drawn: a wrong folder is a sentence
    if watch and sys.stdout.isatty() and not as_json:
        _live(mirror)
        return
    while True:
        view = _look(mirror)
        if as_json:
            print(json.dumps(view.to_json(), indent=None if watch else 2), flush=True)
        else:
            _print(view)
        if not watch:
            return
        time.sleep(LOOK_EVERY_S)


def _look(mirror: Path) -> MirrorView:
    from syncd.laptop.status import read_mirror

    if not mirror.is_dir():
        raise ConfigError("mirror.not-one", path=mirror)
    try:
        return read_mirror(mirror, time.time())
    except OSError as error:
        raise StorageError("storage.unreadable", path=error.filename or mirror, why=error.strerror) from error


def _print(view: MirrorView) -> None:
    from syncd.laptop import views

    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(emoji=False)
        console.print(views.status_table(view, console.width))
        return
    print(lines_shown(views.status_lines(view)), flush=True)


def _live(mirror: Path) -> None:
    from rich.console import Console
    from rich.live import Live

    from syncd.laptop import views

    console = Console(emoji=False)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(views.status_table(_look(mirror), console.width), refresh=True)
            time.sleep(LOOK_EVERY_S)
