"""Weights & Biases, as `start` sees it: what its user should know about where the curves go. No wandb is needed."""

from __future__ import annotations

import netrc
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainer.config import WandbSection, wandb_environment

#: Where W&B is, unless WANDB_BASE_URL names a server of one's own.
SERVER = "https://api.wandb.ai"


def notes(section: WandbSection, environ: Mapping[str, str], home: Path | None = None) -> tuple[str, ...]:
    """One sentence for each thing that is otherwise than somebody who asked for W&B expects.

    `home`: where the user's .netrc lies; default: their home folder.
    """
    told = wandb_environment(section, environ)
    mode, found = told.get("WANDB_MODE", "disabled"), []
    if section.mode is not None and mode != section.mode:
        found.append(f"wandb.mode: {section.mode}: WANDB_MODE={mode} in your environment is stronger.")
    if mode == "offline":
        found.append(
            "W&B: offline: the jobs send nothing; `trainer wandb RUN` and then `wandb sync` show their curves, as "
            "often as you like."
        )
    if mode == "online" and not _has_key(environ, home or Path(environ.get("HOME", "~")).expanduser()):
        unsafe = ", and WANDB_API_KEY is not passed on to jobs" if environ.get("WANDB_API_KEY") else ""
        found.append(
            f"W&B: online: there is no key in ~/.netrc{unsafe}: run `wandb login` once, on this machine; without one "
            "the jobs send nothing, and train."
        )
    return tuple(found)


def _has_key(environ: Mapping[str, str], home: Path) -> bool:
    """Whether `wandb login` was typed for the server in question. What cannot be read is taken for no key."""
    place = urlsplit(environ.get("WANDB_BASE_URL") or SERVER).netloc  # wandb keeps the port in the name
    named = [Path(environ["NETRC"]).expanduser()] if environ.get("NETRC") else []
    for path in named or [home / ".netrc", home / "_netrc"]:
        try:
            if netrc.netrc(str(path)).authenticators(place) is not None:
                return True
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            continue
    return False
