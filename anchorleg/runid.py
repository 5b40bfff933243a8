"""The id of a run that no orchestrator keeps, and what was published under it. Standard library only: jobs begin with
this.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from anchorleg.files import create_exclusive, make_folder

#: What a run id may be made of: it names folders on other people's machines.
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")
#: How a published policy's manifest is called (`syncd.shared.layout`): attempt and count.
_MANIFEST = re.compile(r"([0-9]{6})-[0-9]{9}\.json")


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
    import hashlib

    try:
        nonce = (run_dir / "nonce").read_bytes()
    except (FileNotFoundError, NotADirectoryError):  # not begun
        nonce = b""
    name = _FOREIGN.sub("-", run_dir.name).strip("-._")[:64] or "run"
    return f"{name}-{hashlib.sha256(os.fsencode(os.path.abspath(run_dir)) + nonce).hexdigest()[:8]}"


def published_attempt(shared_dir: Path, run_id: str, slot: int) -> int:
    """The highest attempt of a slot that published a policy in `shared_dir`; -1: none did, or nobody can tell.

    Those who follow the slot take no policy of a lower one any more, wherever the slot's own folder went.
    """
    try:
        names = os.listdir(shared_dir / "v1" / "runs" / run_id / str(slot) / "manifests")
    except OSError:  # who cannot read here cannot publish either, and says so then
        return -1
    return max((int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name))), default=-1)
