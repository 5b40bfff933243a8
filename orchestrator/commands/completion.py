"""What the shell can complete: names of runs, and slots. It never fails: a shell that waits for words gets none.

It reads the files as they are, without the models that check them: a person waits for each of these answers.
"""

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
    """Numbers of the slots of the run that is meant."""
    fields = _config_of(ctx, ctx.params.get("name"))
    count = fields.get("slots", 1) if fields else 0
    return [str(slot) for slot in range(count if isinstance(count, int) else 0) if str(slot).startswith(incomplete)]


def slots_or_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the experiments of the run that is meant, else the numbers of its slots."""
    rows = _config_of(ctx, ctx.params.get("run")).get("experiments")
    names = [str(row.get("name", "")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [name for name in names if name and name.startswith(incomplete)] or slots(ctx, incomplete)


def _config_of(ctx: typer.Context, name: Any) -> dict[str, Any]:
    """The config of the run that is meant, as far as the line is typed: by name, --config, or the folder."""
    config = ctx.params.get("config")
    known = [entry for entry in _entries() if name is None or name in {entry.get("run_name"), entry.get("run_id")}]
    here = Path(config or "cluster_config.json")
    fields: Any = {}
    if name is None and os.path.exists(here):
        fields = _read(here)
    elif known:
        fields = _read(Path(str(known[0].get("run_dir"))) / "run.json").get("config")
    return fields if isinstance(fields, dict) else {}


def _entries() -> list[dict[str, Any]]:
    try:
        found = [_read(path) for path in runs_folder().glob("*.json")]
    except OSError:
        return []
    # Not Path.exists, which raises where a folder may not be read.
    there = [entry for entry in found if os.path.exists(Path(str(entry.get("run_dir", ""))) / "run.json")]
    return sorted(there, key=lambda entry: str(entry.get("registered_at", "")), reverse=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
