"""Which whole checkpoints a run folder has: `slots/<slot>/attempts/<attempt>/checkpoints/<step>/`, a folder each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.files import read_json_or_none
from syncd.shared.layout import NAME, SLOT, folder_names

#: Of a slot so many are told of: a checkpoint may be cleared away while it comes, for a newer one.
MOST_TOLD = 3
_NUMBER = "(0|[1-9][0-9]{0,14})"
#: A file of a checkpoint, below the run folder.
SAVED_FILE = re.compile(
    rf"slots/({SLOT.pattern})/attempts/{_NUMBER}/checkpoints/{_NUMBER}/[A-Za-z0-9][A-Za-z0-9._-]{{0,160}}"
)


class SavedAt(NamedTuple):
    """Which checkpoint of a slot. Later ones compare greater."""

    attempt: int
    step: int


def path_in_run(slot: int, saved: SavedAt) -> str:
    """Where it lies in its run folder."""
    return f"slots/{slot}/attempts/{saved.attempt}/checkpoints/{saved.step}"


def run_folder_of(shared: Path) -> Path | None:
    """The run folder whose own shared folder this is; None: nothing says where it is."""
    return shared.parent if shared.name == "shared" else None


def slots_in(slots: Path) -> list[int]:
    """The slots that `<run folder>/slots` has. Errors: OSError."""
    return sorted(int(name) for name in folder_names(slots) if SLOT.fullmatch(name))


def newest_saved(slots: Path, slot: int) -> list[SavedAt]:
    """The newest checkpoints of a slot, the newest first; one that is not whole has another name. Errors: OSError."""
    attempts, found = slots / str(slot) / "attempts", list[SavedAt]()
    for attempt in _numbers(attempts):
        found += [SavedAt(attempt, step) for step in _numbers(attempts / str(attempt) / "checkpoints")]
        if len(found) >= MOST_TOLD:
            break
    return found[:MOST_TOLD]


def run_id_of(run: Path) -> str | None:
    """The id of the run in the folder `run`, by its `run.json`; None where that is not there, or not for us."""
    value: Any = read_json_or_none(run / "run.json")
    run_id = value.get("run_id") if isinstance(value, dict) else None
    return run_id if isinstance(run_id, str) and NAME.fullmatch(run_id) else None


def _numbers(folder: Path) -> list[int]:
    """The largest first."""
    return sorted((int(name) for name in folder_names(folder) if re.fullmatch(_NUMBER, name)), reverse=True)
