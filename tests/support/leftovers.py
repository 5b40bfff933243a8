"""What a writer that was killed leaves in a folder, and what one that is at work has there."""

from __future__ import annotations

import os
from pathlib import Path

from anchorleg.files import LEFT_BEHIND_S


def unfinished(folder: Path, name: str) -> tuple[Path, Path]:
    """(a dead writer's unfinished file of that name, one of a living writer)."""
    dead, living = (folder / f".{name}.{pid}.0a0b0c0d.tmp" for pid in (4711, 4712))
    for path in (dead, living):
        path.write_bytes(b"half of it")
    at = living.stat().st_mtime - LEFT_BEHIND_S - 1
    os.utime(dead, (at, at))
    return dead, living


def descriptors_below(folder: Path) -> list[str]:
    """What this process has open of a folder. (Others come and go with what earlier tests left to the collector.)"""
    found = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return sorted(path for path in found if Path(path).is_relative_to(folder.resolve()))
