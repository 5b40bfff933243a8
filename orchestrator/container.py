"""A program's command line inside its image, for the shim and for the doctor's probe. Standard library only."""

from __future__ import annotations

from typing import Any


def container_command(container: dict[str, Any], command: list[str], binds: list[str], folder: str) -> list[str]:
    """The program's command line inside its image. `binds`: folders that must be visible at the same path."""
    every = list(dict.fromkeys([*binds, *container["binds"]]))
    if container["runtime"] == "ch-run":
        options = [f"--bind={bind}" for bind in every]
        return ["ch-run", "--write", f"--cd={folder}", *options, container["image"], "--", *command]
    gpu = ["--nv"] if container["gpus"] else []
    options = [word for bind in every for word in ("--bind", bind)]
    return [container["runtime"], "exec", *gpu, "--pwd", folder, *options, container["image"], *command]
