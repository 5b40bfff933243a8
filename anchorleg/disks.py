"""Where a folder lies: its filesystem, and the room that this account has on it. Standard library."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: `quota` and `df -k` count blocks of this.
BLOCK_BYTES = 1024
#: How many, as an honest program writes it: `int` takes other digits too, and refuses thousands of them.
BLOCKS = "[0-9]{1,18}"
#: A local program may ask a file server.
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class DiskQuota:
    """One line of `quota`: what is used, and its limits (None: no limit)."""

    filesystem: str
    used_bytes: int
    limit_bytes: int | None
    used_files: int
    limit_files: int | None


def parse_quota(text: str) -> Iterator[DiskQuota]:
    """What `quota -w` prints: filesystem, blocks, quota, limit, (grace), files, quota, limit; a star marks what is
    over. Other lines are titles.
    """
    for line in text.splitlines():
        name, *rest = line.split()[:20] or [""]
        numbers = [int(word.rstrip("*")) for word in rest if re.fullmatch(rf"{BLOCKS}\*?", word)]
        if len(numbers) == 6:
            blocks, soft_blocks, hard_blocks, files, soft_files, hard_files = numbers
            limit_bytes = (hard_blocks or soft_blocks) * BLOCK_BYTES or None
            yield DiskQuota(name, blocks * BLOCK_BYTES, limit_bytes, files, hard_files or soft_files or None)


def nearest_folder(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next((one for one in (path, *path.parents) if one.is_dir()), Path("/"))


def free_room(folder: Path) -> tuple[int | None, int | None]:
    """Free bytes and free inodes for an ordinary user; None where the filesystem does not say."""
    try:
        told = os.statvfs(folder)
    except OSError:
        return None, None
    return told.f_bavail * told.f_frsize, told.f_favail if told.f_files else None


def filesystem_of(path: Path, mounts: str | None = None) -> str:
    """The type of the filesystem that holds `path` (`nfs4`, `lustre`, …); empty where the system does not say."""
    try:
        text = Path("/proc/self/mounts").read_text(errors="replace") if mounts is None else mounts
    except OSError:  # macOS: `mount` says "… on PATH (apfs, local, …)"
        holds = re.findall(r" on (.+) \(([a-z0-9]+)", printed("mount"))
    else:
        fields = [line.split(" ") for line in text.splitlines()]
        holds = [(_unescaped(each[1]), each[2]) for each in fields if len(each) > 2]
    real = path.resolve()
    found = [(len(place), number, kind) for number, (place, kind) in enumerate(holds) if real.is_relative_to(place)]
    return max(found)[2] if found else ""


def printed(*command: str, env: Mapping[str, str] | None = None) -> str:
    """What a local program prints; empty where it is not there, or does not answer."""
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _unescaped(place: str) -> str:
    # A space is \040 there.
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), place)
