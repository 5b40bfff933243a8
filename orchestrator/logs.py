"""`orchestrator logs`: a slot's job output, across its jobs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.models import parse_token
from orchestrator.rundir import RunDir
from orchestrator.status import run_view

LOOK_S = 0.3
#: Nothing more will come in these.
_OVER = frozenset({"finished", "failed", "stopped"})


def show_logs(run_dir: RunDir, slot: int, *, follow: bool) -> None:
    """Print the newest job's output; with `follow`, go on until interrupted. Errors: ConfigError for no such slot."""
    if not run_dir.slot(slot).exists() and not newest_job(run_dir, slot):
        raise ConfigError(f"{run_dir.path} has no slot {slot}.")
    shown: dict[Path, int] = {}
    current: Path | None = None
    while True:
        folder = newest_job(run_dir, slot)
        if folder is not None:
            if folder != current:
                current = folder
                print(f"==> {folder}", flush=True)
            for path in sorted(folder.glob("job-*.out")) + sorted(folder.glob("job-*.err")):
                shown[path] = _print_from(path, shown.get(path, 0))
        state = next((view.state for view in run_view(run_dir).slots if view.slot == slot), "waiting")
        if not follow and not shown:
            print(f"slot {slot} has no output yet; it is {state} (`orchestrator status` says why).")
        if not follow or state in _OVER:
            return
        time.sleep(LOOK_S)


def newest_job(run_dir: RunDir, slot: int) -> Path | None:
    """The job folder of the slot's highest attempt; among its submissions the newest one that has output."""
    found = []
    for folder in run_dir.jobs.iterdir() if run_dir.jobs.exists() else ():
        parsed = parse_token(folder.name)
        if parsed is not None and parsed[0] == slot:
            found.append((parsed[1], any(folder.glob("job-*")), folder.stat().st_mtime, folder))
    return max(found)[-1] if found else None


def _print_from(path: Path, offset: int) -> int:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError:
        return offset
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    return offset + len(data)
