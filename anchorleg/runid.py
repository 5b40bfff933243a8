"""The id of a run that no orchestrator keeps. Standard library only: jobs begin with this."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from anchorleg.files import create_exclusive, make_folder

#: What a run id may be made of: it names folders on other people's machines.
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")


def begin_id(run_dir: Path) -> None:
    """Give the run that this folder is for an id of its own, unless it has one. What has slots has begun, and keeps the
    id that it has. Errors: OSError.
    """
    make_folder(run_dir)
    if not ((run_dir / "nonce").exists() or (run_dir / "slots").exists()):
        create_exclusive(run_dir / "nonce", f"{secrets.token_hex(16)}\n".encode())


def run_id_of(run_dir: Path) -> str:
    """The folder's name and 8 hex digits of the sha256 of its path and its `nonce`.

    So a copy in another place is another run, and so is one that is begun anew where an old one was removed: laptops
    would take its first policies for older ones than theirs. Errors: OSError.
    """
    import hashlib  # noqa: PLC0415 - the first process of every job must start quickly, and needs none

    try:
        nonce = (run_dir / "nonce").read_bytes()
    except (FileNotFoundError, NotADirectoryError):  # not begun
        nonce = b""
    name = _FOREIGN.sub("-", run_dir.name).strip("-._")[:64] or "run"
    return f"{name}-{hashlib.sha256(os.fsencode(os.path.abspath(run_dir)) + nonce).hexdigest()[:8]}"
