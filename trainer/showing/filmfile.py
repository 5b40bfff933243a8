"""Where a film may go. Known before the policy and the simulator are loaded, which takes seconds."""

from __future__ import annotations

import os
from pathlib import Path

from trainer.errors import ConfigError

#: How the names of films end.
KINDS = (".mp4", ".gif")


def check_name(path: Path) -> None:
    """Errors: ConfigError for a path that cannot be a film's."""
    if path.suffix.lower() not in KINDS or os.path.isdir(path):
        raise ConfigError("film.out-suffix", path=path)


def check_place(path: Path) -> None:
    """As `check_name`, and for a folder that is not there: one made by mistake lies anywhere."""
    check_name(path)
    if not os.path.isdir(path.absolute().parent):
        raise ConfigError("film.no-folder", path=path, folder=path.absolute().parent)
