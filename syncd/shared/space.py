"""What of a disk stays free, whatever others send: the owner's inbox and a laptop's mirror have the same bound."""

from __future__ import annotations

import os
from pathlib import Path

#: Checkpoints, and whoever works at the machine, need it more. On a small disk, this share of it.
FREE_BYTES = 1024**3
FREE_SHARE = 0.02


def is_nearly_full(folder: Path, added_bytes: int = 0) -> bool:
    """Whether the disk of `folder` would have too little left after so many bytes more. Errors: OSError."""
    told = os.statvfs(folder)
    left = told.f_bavail * told.f_frsize - added_bytes
    return left < min(FREE_BYTES, FREE_SHARE * told.f_blocks * told.f_frsize)
