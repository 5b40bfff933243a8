"""Where an attempt began, as it wrote it down: `slots/<k>/attempts/<a>/parent.json`. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from anchorleg.files import read_json


class BeganFrom(NamedTuple):
    """The checkpoint (the name of its folder) of an older attempt; `attempt` None: from scratch."""

    attempt: int | None
    step: int
    checkpoint: str


def read_parent(slot_dir: Path, attempt: int) -> BeganFrom | None:
    """None: it has not decided yet. Errors: OSError; ValueError, one sentence, where it is damaged: to guess could
    follow a ghost, or go round in circles.
    """
    path = slot_dir / "attempts" / str(attempt) / "parent.json"
    try:
        value = read_json(path)
        if value["attempt"] is None:
            return BeganFrom(None, 0, "")
        parent = BeganFrom(int(value["attempt"]), int(value["step"]), str(value["checkpoint"]))
        if 0 <= int(value["attempt"]) < attempt:
            return parent
        why: Exception | None = None
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        why = error
    raise ValueError(
        f"{path}, which says where attempt {attempt} began, is damaged: restore it from a backup, or move the slot's "
        "folder away to start from scratch"
    ) from why
