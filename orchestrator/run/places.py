"""Where this account keeps what belongs to no single run. Standard library only: shells that complete wait for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_STATE_HOME/anchorleg`, by default below `~/.local/state`."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "anchorleg"


def registry_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the entries of the runs are."""
    return state_folder(environ) / "runs"
