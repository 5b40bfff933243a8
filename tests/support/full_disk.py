"""A disk on which not one byte more fits, or not one file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from daemons import PATIENCE_S


def fill_inodes(where: Path) -> Path:
    """Take the last inode of a tmpfs. Returns the folder of what has them."""
    told = os.statvfs(where)
    in_use = told.f_files - told.f_ffree
    done = ["mount", "-o", f"remount,nr_inodes={in_use + 64}", str(where)]
    subprocess.run(done, check=True, timeout=PATIENCE_S)
    ballast = where / "ballast"
    ballast.mkdir()
    for number in range(100):
        try:
            (ballast / str(number)).touch()
        except OSError:
            break
    return ballast


def fill(where: Path) -> Path:
    """Take the last byte. Returns the file that has it."""
    ballast = where / "ballast"
    with open(ballast, "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break
    return ballast
