"""Contributors' agents that may be watched: `inbox/<who>/live/<run id>/<slot>/` is there for as long as they are.

A contributor's `syncd serve` makes the folder when its machine offers them, and takes it away with the connection
(`syncd.wire.intake`). A laptop's mirror has the same folders, as far as its server told of them.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from anchorleg.files import sweep_temporary
from syncd.shared.holds import held
from syncd.shared.inbox import Inbox, live_files
from syncd.shared.layout import SLOT, Shared, folder_names

#: Contributors of whom one run's watchers are told; a class has some thirty.
MOST_OFFERED = 64


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
