"""Where this account keeps what belongs to no single run. Standard library only: shells that complete wait for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def registry_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the entries are."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "anchorleg" / "runs"
