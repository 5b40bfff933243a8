"""Where an attempt began, as it wrote it down, and going back on purpose: which checkpoints of a slot nobody goes on
from any more, and why.

`slots/<k>/rollbacks/<n>.json`, each written once::

    {"attempt": 7, "step": 120000, "at": 1760086400.0, "why": "…", "without": "mallory"}

From the next attempt on, what attempts up to `attempt` saved after `step` is passed over. Newer attempts' checkpoints
are not meant: they descend from what is left. Until that attempt begins, removing the file takes the decision back, and
what it passes over stays. `without`: a contributor whose experience is not taken in again.

A listing of a network folder may be a minute old. So an attempt may have begun, unseen, when a decision that names the
one before it was written: where it went on from what is passed over, it is meant, too.

Standard library only: a job's side needs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from anchorleg.files import create_exclusive, make_folder, read_json


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


FOLDER = "rollbacks"
#: Of a decision; what an editor left beside it is none.
_NAME = re.compile(r"\d+\.json")


class Rollback(NamedTuple):
    """One decision to go back; see the module."""

    attempt: int
    step: int
    at: float
    why: str = ""
    without: str = ""

    def hides(self, attempt: int, step: int) -> bool:
        """Whether the checkpoint of `step` that `attempt` saved is passed over."""
        return attempt <= self.attempt and step > self.step


def rollbacks(slot_dir: Path, until: int | None = None) -> list[Rollback]:
    """All decisions, oldest first, each with the last attempt that it means; `until`: attempts above are not looked at.
    Errors: OSError; ValueError for one that is damaged: to overlook it would go on from what somebody wanted to be rid
    of.
    """
    folder, names, found = slot_dir / FOLDER, list[str](), list[Rollback]()
    with contextlib.suppress(FileNotFoundError):
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    for name in sorted(names, key=lambda name: int(name.removesuffix(".json"))):
        with contextlib.suppress(FileNotFoundError):  # taken back just now
            found.append(_with_unseen(slot_dir, _read(folder / name), until))
    return found


def _with_unseen(slot_dir: Path, back: Rollback, until: int | None) -> Rollback:
    """`back` with the attempts that began unseen. An honest one never starts from what is passed over: it ends the
    look.
    """
    with contextlib.suppress(FileNotFoundError):
        numbers = sorted(int(name) for name in os.listdir(slot_dir / "attempts") if name.isdigit())
        for number in (one for one in numbers if back.attempt < one and (until is None or one <= until)):
            parent = read_parent(slot_dir, number)
            if parent is None:
                continue  # it has not decided yet, and has saved nothing
            if parent.attempt is None or not back.hides(parent.attempt, parent.step):
                break
            back = back._replace(attempt=number)
    return back


def can_go_on(checkpoint: Path) -> bool:
    """Whether a job can go on from it: from one of the trainer's that was cut down to its nets none can. What is not
    known is taken at its word. Errors: OSError.
    """
    try:
        told = read_json(checkpoint / "manifest.json")
    except (FileNotFoundError, ValueError):
        return True
    return not (isinstance(told, dict) and told.get("kind") == "policy")


def roll_back(slot_dir: Path, decision: Rollback) -> Path:
    """Write `decision` down, durably; the file. Errors: OSError."""
    folder = slot_dir / FOLDER
    make_folder(folder)
    data = json.dumps(decision._asdict()).encode()
    number = len(rollbacks(slot_dir))
    while not create_exclusive(folder / f"{number}.json", data):
        number += 1
    return folder / f"{number}.json"


def _read(path: Path) -> Rollback:
    try:
        value = read_json(path)
        return Rollback(
            int(value["attempt"]), int(value["step"]), float(value["at"]), str(value["why"]), str(value["without"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: repair it, or delete it to use the newest checkpoint") from error
