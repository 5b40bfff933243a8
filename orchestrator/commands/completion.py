"""What the shell can complete: names of runs, and slots. It never fails: a shell that waits for words gets none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import typer

from anchorleg.places import runs_folder


def run_names(incomplete: str) -> list[str]:
    """Names of the runs that were started from this account, newest first."""
    names = dict.fromkeys(str(entry.get("run_name", "")) for entry in _entries())
    return [name for name in names if name and name.startswith(incomplete)]


def slots(ctx: typer.Context, incomplete: str) -> list[str]:
    """Numbers of the slots of the run that is meant, as far as the line is typed: by name, --config, or the folder."""
    name = ctx.params.get("run") or ctx.params.get("name")
    here = Path(ctx.params.get("config") or "cluster_config.json")
    known = [entry for entry in _entries() if name in {None, entry.get("run_name"), entry.get("run_id")}]
    fields: Any = {}
    if name is None and os.path.exists(here):
        fields = _read(here)
    elif known:
        fields = _read(Path(str(known[0].get("run_dir"))) / "run.json").get("config")
    count = fields.get("slots", 1) if isinstance(fields, dict) and fields else 0
    return [str(slot) for slot in range(count if isinstance(count, int) else 0) if str(slot).startswith(incomplete)]


def _entries() -> list[dict[str, Any]]:
    try:
        found = [_read(path) for path in runs_folder().glob("*.json")]
    except OSError:
        return []
    there = [entry for entry in found if _read(Path(str(entry.get("run_dir", ""))) / "run.json")]
    return sorted(there, key=lambda entry: str(entry.get("registered_at", "")), reverse=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
