"""`syncd status`: what is in the mirror; `syncd doctor`: what stands between this machine and the other side."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from anchorleg.words import lines_shown
from syncd.access.settings import Settings, load_settings, parse_remote
from syncd.commands.way import FolderArgument, JsonOption, RemoteArgument, default_name
from syncd.errors import ConfigError, ProblemsFoundError, StorageError

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


def doctor(remote: RemoteArgument = "", folder: FolderArgument = "", as_json: JsonOption = False) -> None:
    """Examine the way to the other side: host key, login, clock, the inbox, the disk, the service.

    Says what to do about each finding. Ends with 11 where one of them is a problem. Changes nothing.
    """
    from rich.console import Console

    from anchorleg.findings import as_objects, examine, problems_of, show_findings, total
    from syncd.doctor import CHECKS, gather

    settings = load_settings()
    place = parse_remote(remote, settings=settings)
    facts = gather(place, settings.mirror_at(folder), settings, settings.name or default_name())
    findings = examine(CHECKS, facts)
    if as_json:
        print(json.dumps({"findings": as_objects(findings), "facts": facts.model_dump(mode="json")}, indent=2))
    else:
        show_findings(findings, screen := Console(emoji=False, highlight=False))
        print(f"{chr(10) if screen.is_terminal else ''}{total(findings)}.", flush=True)
    if bad := problems_of(findings):
        raise ProblemsFoundError("doctor.problems", count=len(bad), checks=", ".join(bad))
