"""What was asked of single slots: `requests/<n>.json`, written by commands, taken up in their order by every tick.

They stay: the experiments that were added are in no other place (`rundir.load_run` adds them to the config).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anchorleg.files import to_json
from orchestrator.decisions.requests import Kind, Request
from orchestrator.disk import Disk, read_json
from orchestrator.errors import RunFolderError


def newest_request(disk: Disk, folder: Path) -> int:
    """The number of the newest one, 0 where there is none."""
    return max(_numbers(disk, folder), default=0)


def _numbers(disk: Disk, folder: Path) -> list[int]:
    stems = [name.removesuffix(".json") for name in disk.names(folder) if name.endswith(".json")]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def requests_after(disk: Disk, folder: Path, number: int) -> list[Request]:
    """Those with a higher number, in their order. Errors: RunFolderError where one is damaged."""
    return [_read(disk, folder / f"{n}.json") for n in _numbers(disk, folder) if n > number]


def _read(disk: Disk, path: Path) -> Request:
    try:
        return Request.model_validate(read_json(disk, path))
    except ValueError:
        raise RunFolderError("request.damaged", path=path) from None


def ask(disk: Disk, folder: Path, kind: Kind, *, now: float, after: int = 0, **what: Any) -> Request:
    """Add a request under the next free number, so that two commands cannot overwrite each other.

    `after`: the newest that was taken up; its file may have been moved away. Errors: OSError.
    """
    disk.make_folder(folder, exist_ok=True)
    number = max(after, newest_request(disk, folder))
    while True:
        number += 1
        request = Request(number=number, at=now, kind=kind, **what)
        data = to_json(request.model_dump(mode="json", exclude_defaults=True))
        if disk.create(folder / f"{number}.json", data):  # it may have settings
            return request
