"""What the shell can complete: names of runs, and slots. It never fails: a shell that waits for words gets none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer


def run_names(incomplete: str) -> list[str]:
    """Names of the runs that were started from this account, newest first."""
    try:
        from orchestrator.registry import entries  # noqa: PLC0415 - only where somebody completes

        names = [entry.run_name for entry in entries()]
    except (OSError, ValueError):
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def slots(ctx: typer.Context, incomplete: str) -> list[str]:
    """Numbers of the slots of the run that is meant, as far as the line is typed."""
    from orchestrator.commands.options import locate  # noqa: PLC0415
    from orchestrator.disk import LOCAL_DISK, read_json  # noqa: PLC0415
    from orchestrator.errors import AnchorlegError  # noqa: PLC0415

    config = ctx.params.get("config")
    try:
        run_dir = locate(ctx.params.get("name"), Path(config) if config else None)
        record: dict[str, Any] = read_json(LOCAL_DISK, run_dir.run_file)
        count = int(record["config"].get("slots", 1))
    except (AnchorlegError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return [str(slot) for slot in range(count) if str(slot).startswith(incomplete)]
