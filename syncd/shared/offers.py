"""Contributors' agents that may be watched: `inbox/<who>/live/<run id>/<slot>/` is there for as long as they are.

A contributor's `syncd serve` makes the folder when its machine offers them, and takes it away with the connection
(`syncd.wire.live`). A laptop's mirror has the same folders, as far as its server told of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from pathlib import Path

from anchorleg.files import make_shared_folder, sweep_temporary
from anchorleg.live.wanted import scene_name
from syncd.shared.counts import held
from syncd.shared.inbox import Inbox, live_files
from syncd.shared.layout import SLOT, Shared, files_in, folder_names, put

#: Contributors of whom one run's watchers are told; a class has some thirty.
MOST_OFFERED = 64
#: In one folder: a task has one, and MT50 is watched a few tasks at a time.
MOST_SCENES = 16
#: Rings that nobody looked through for a day: a viewer begins another one.
RING_KEPT_S = 86_400.0


def may_show(inbox: Inbox, now: float) -> bool:
    """Whether anybody may watch this contributor's agents: not while it is dropped or held. `now`: unix s."""
    return not inbox.is_dropped and held(inbox.path, now) is None


def offered(shared: Shared, run_id: str, now: float) -> dict[int, tuple[str, ...]]:
    """Slot → whose agents play its policy, and may be watched now (unix s), by name. Errors: OSError."""
    found: dict[int, tuple[str, ...]] = {}
    count = 0
    for inbox in Inbox.all_of(shared):
        if (inbox.path / "live").is_symlink():
            continue
        slots = [int(name) for name in folder_names(inbox.path / "live" / run_id) if SLOT.fullmatch(name)]
        if not slots or not may_show(inbox, now):
            continue
        for slot in slots[: MOST_OFFERED - count]:
            found[slot] = (*found.get(slot, ()), inbox.who)
            count += 1
    return found


def withdraw(folder: Path) -> None:
    """Nobody may watch these agents any more: their files go, and the folder. Errors: OSError."""
    for file in live_files(folder):
        file.path.unlink(missing_ok=True)
    sweep_temporary(folder, math.inf)  # else a server that was killed in the middle of one offers them for ever
    with contextlib.suppress(OSError):  # somebody else's file keeps it
        for empty in (folder, *folder.parents[:3]):  # the run's, `live`; in a mirror the contributor's
            os.rmdir(empty)


def keep_scene(folder: Path, sha256: str, data: bytes) -> bool:
    """Put a scene that came to its place, of which the newest stay; whether it is what its name says, the sum of
    its bytes. What it shows is judged by the viewer that draws it. Errors: OSError.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        return False
    make_shared_folder(folder)
    put(folder / scene_name(sha256), data)
    prune_scenes(folder)
    return True


def prune_scenes(folder: Path) -> None:
    """Keep the newest scenes of a folder. Errors: OSError."""
    scenes = files_in(folder, lambda name: name.endswith(".scene"))
    for file in sorted(scenes, key=lambda file: -file.written_at)[MOST_SCENES:]:
        os.unlink(file.path)


def prune_live(folder: Path, *, now: float) -> None:
    """What nobody looks through any more goes; `now`: unix s. Errors: OSError."""
    prune_scenes(folder)
    for file in files_in(folder, lambda name: name.endswith(".ring")):
        if now - file.written_at > RING_KEPT_S:
            os.unlink(file.path)
