"""`syncd doctor`: what stands between this machine and the other side."""

from __future__ import annotations

import json

from syncd.commands.way import FolderArgument, JsonOption, RemoteArgument
from syncd.errors import ProblemsFoundError


def doctor(remote: RemoteArgument = "", folder: FolderArgument = "", as_json: JsonOption = False) -> None:
    """Examine the way to the other side: host key, login, clock, the inbox, the disk, the service.

    Says what to do about each finding. Ends with 11 where one of them is a problem. Changes nothing.
    """
    from rich.console import Console

    from anchorleg.findings import as_objects, examine, problems_of, show_findings, total
    from syncd.access.settings import load_settings, parse_remote
    from syncd.commands.way import default_name
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
