"""Where this account keeps what belongs to no single run: state, settings, caches; and a run's id.

The folders of the XDG base directory specification, and on macOS, where no XDG variable is set, those of Apple's file
system guide. Not `platformdirs`: shells that complete wait for this module, and jobs have the standard library alone.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from anchorleg.files import create_exclusive, make_folder

Kind = Literal["state", "config", "cache"]
_NAME = "anchorleg"
_USUAL = {"state": ".local/state", "config": ".config", "cache": ".cache"}
_APPLES = {"state": ".local/state", "config": "Library/Application Support", "cache": "Library/Caches"}


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`$HOME`, else what the system says. Where neither does, as in a container: a place where nothing can be."""
    home = user_path(environ.get("HOME") or "~")
    return home if home.is_absolute() else Path(os.devnull)


def short_path(path: Path) -> str:
    """With `~` for the home, as people write it."""
    home = home_folder()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def user_path(path: str | os.PathLike[str]) -> Path:
    """`path` with a home folder in the place of its `~`; as it is where nobody knows one (`Path.expanduser` raises)."""
    return Path(os.path.expanduser(path))


def account_name() -> str:
    """Who we are, by name; by number where the account has none, as in a container."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def base_folder(kind: Kind, environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where programs of this account put their folders. A relative `$XDG_…` is ignored, as its specification says."""
    stated = environ.get(f"XDG_{kind.upper()}_HOME", "")
    if os.path.isabs(stated):
        return Path(stated)
    return home_folder(environ) / (_APPLES if platform == "darwin" else _USUAL)[kind]


def own_folder(kind: Kind, environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Ours in it; it need not exist yet."""
    return base_folder(kind, environ, platform) / _NAME


def runs_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the entries of the runs of this account are (`orchestrator.run.rundir`)."""
    return own_folder("state", environ) / "runs"


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
