"""The command that makes a film of an agent on the page. Pure: the page shows it, and a person types it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from syncd import store
from viewer.live.troupe import Role

#: Of a name, what a file's name does without.
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def film_command(role: Role, header: Mapping[str, Any], tasks: Sequence[str], *, is_exact: bool) -> str:
    """`trainer play …`, for the shell of the viewer's machine. `header`: of the newest batch that is shown. `is_exact`:
    it is played here, so its facts name the very policy; else the slot's newest one is filmed. Strangers wrote the
    header: "" where its task is none of `tasks`; a version that cannot be is left out.
    """
    task = header.get("task")
    if task not in tasks:
        return ""
    shared = store.Shared(role.shared.absolute())
    version = _version(header) if is_exact else None
    if version is not None:
        policy = [str(shared.slot(role.run_id, role.slot).manifest(version))]
    else:
        policy = [f"{role.run_id}/{role.slot}", "--shared-dir", str(shared.path)]
    name = _ODD.sub("_", f"{role.run_id.rpartition('-')[0] or role.run_id}-slot{role.slot}-{task}")
    return shlex.join(["trainer", "play", *policy, "--task", str(task), "--out", f"{name}.mp4"])


def _version(header: Mapping[str, Any]) -> store.Version | None:
    try:
        return store.Version.parse(str(header.get("facts", {}).get("policy")))
    except ValueError:
        return None
