"""`syncd status`: what is in the mirror, and how the client stands with the other side."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from anchorleg.words import lines_shown
from syncd.access.settings import Settings, load_settings
from syncd.commands.way import FolderArgument
from syncd.errors import ConfigError, StorageError

#: `--watch` looks this often.
LOOK_EVERY_S = 1.0


def status(
    folder: FolderArgument = "",
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output; with --watch a line each.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking, until Ctrl-C.")] = False,
) -> None:
    """Show what is in the mirror, and how the client stands with the other side."""
    from syncd.laptop.status import read_mirror
    from syncd.laptop.views import status_lines

    mirror = (Settings() if folder else load_settings()).mirror_at(folder)
    if not mirror.is_dir():
        raise ConfigError("mirror.not-one", path=mirror)
    while True:
        try:
            view = read_mirror(mirror, time.time())
        except OSError as error:
            raise StorageError("storage.unreadable", path=error.filename or mirror, why=error.strerror) from error
        if as_json:
            print(json.dumps(view.to_json(), indent=None if watch else 2), flush=True)
        else:
            print(lines_shown(status_lines(view)), flush=True)
        if not watch:
            return
        time.sleep(LOOK_EVERY_S)
