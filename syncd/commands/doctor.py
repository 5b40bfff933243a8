"""`syncd doctor`: what stands between this machine and the other side."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from syncd.commands.way import FolderArgument, JsonOption, RemoteArgument
from syncd.errors import ProblemsFoundError

if TYPE_CHECKING:
    from anchorleg.findings import Finding


def doctor(remote: RemoteArgument = "", folder: FolderArgument = None, as_json: JsonOption = False) -> None:
    """Examine the way to the other side: host key, login, server, clocks, disks, the service, the inbox.

    Says what to do about each finding. Ends with 11 where one of them is a problem. Changes nothing.
    """
    from anchorleg.findings import Level  # noqa: PLC0415 - `--help` stays quick
    from syncd.access.settings import load_settings, parse_remote  # noqa: PLC0415
    from syncd.commands.way import default_name  # noqa: PLC0415
    from syncd.doctor.checks import examine  # noqa: PLC0415
    from syncd.doctor.gather import gather  # noqa: PLC0415

    settings = load_settings()
    place = parse_remote(remote, settings=settings)
    mirror = settings.mirror_at(folder)
    facts = gather(place, mirror, settings, settings.name or default_name())
    findings = examine(facts)
    if as_json:
        told = {"findings": [asdict(each) for each in findings], "facts": facts.model_dump(mode="json")}
        print(json.dumps(told, indent=2))
    else:
        _show(findings)
    bad = [each.check for each in findings if each.level is Level.PROBLEM]
    if bad:
        raise ProblemsFoundError("doctor.problems", count=len(bad), checks=", ".join(bad))


def _show(findings: tuple[Finding, ...]) -> None:
    from anchorleg.findings import findings_lines, findings_table, total  # noqa: PLC0415 - see above

    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        console = Console(emoji=False, highlight=False)
        console.print(Text.assemble(*findings_table(findings, console.width)))
        console.print(f"\n{total(findings)}.")
        return
    for line in findings_lines(findings):
        print(line)
    print(f"{total(findings)}.", flush=True)
