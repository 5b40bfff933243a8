"""Weights & Biases, as `start` sees it: what its user should know about where the curves go. No wandb is needed."""

from __future__ import annotations

import netrc
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from anchorleg.places import home_folder, user_path
from trainer.config.wandb import WANDB_MODES, WandbSection, wandb_environment, wandb_mode

#: Where W&B is, unless WANDB_BASE_URL names a server of one's own.
SERVER = "https://api.wandb.ai"


def notes(section: WandbSection, environ: Mapping[str, str], home: Path | None = None) -> tuple[str, ...]:
    """One sentence for each thing that is otherwise than somebody who asked for W&B expects.

    `home`: where the user's .netrc lies; default: their home folder.
    """
    told = wandb_environment(section, environ)
    mode, found = wandb_mode(told), []
    if section.mode is not None and mode != section.mode:
        found.append(f"wandb.mode: {section.mode}: WANDB_MODE={mode} in your environment is stronger.")
    if mode not in WANDB_MODES:
        found.append(f"W&B: WANDB_MODE is {mode!r}, and none of {', '.join(WANDB_MODES)}: the jobs send no curves.")
    if mode == "offline":
        found.append(
            "W&B: offline: the jobs send nothing; `trainer wandb RUN` and then `wandb sync` show their curves, as "
            "often as you like."
        )
    if mode == "online":
        server = _server(environ)
        if not server:
            found.append(
                "W&B: online: WANDB_BASE_URL is no address of a server, such as https://wandb.example.org; with it the "
                "jobs send nothing, and train."
            )
        elif not _has_key(server, environ, home or home_folder(environ)):
            unsafe = ", and WANDB_API_KEY is not passed on to jobs" if environ.get("WANDB_API_KEY") else ""
            found.append(
                f"W&B: online: there is no key in ~/.netrc{unsafe}: run `wandb login` once, on this machine; without "
                "one the jobs send nothing, and train."
            )
    return tuple(found)


def _server(environ: Mapping[str, str]) -> str:
    """Its name as .netrc has it, with the port, as wandb keeps it; "" where `WANDB_BASE_URL` names none."""
    try:
        return urlsplit(environ.get("WANDB_BASE_URL") or SERVER).netloc
    except ValueError:
        return ""


def _has_key(server: str, environ: Mapping[str, str], home: Path) -> bool:
    """Whether `wandb login` was typed for that server. What cannot be read is taken for no key."""
    path = user_path(environ["NETRC"]) if environ.get("NETRC") else home / ".netrc"
    try:
        return netrc.netrc(str(path)).authenticators(server) is not None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return False
