"""Where this account keeps what belongs to no single run: state, settings, caches.

The folders of the XDG base directory specification, and on macOS, where no XDG variable is set, those of Apple's file
system guide. Not `platformdirs`: shells that complete wait for this module, and jobs have the standard library alone.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

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
    """Where the entries of the runs of this account are (`orchestrator.run.registry`)."""
    return own_folder("state", environ) / "runs"
