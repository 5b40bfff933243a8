"""Episodes that slots of one run give each other, as files in the run folder.

What an attempt gives lies in its own folder, where the other slots read it::

    slots/<k>/attempts/<a>/episodes-<group>/<number>-<sha256>   one in `every` finished episodes of it, as a segment

`<group>` is `trainer.config.training.group_identity`, `<number>` that of the episode among all that the slot finished.
A ghost of an older attempt writes where its successor prunes, and what it gives are true episodes all the same.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from anchorleg.files import make_folder, read_regular, write_bytes
from anchorleg.job import Job, attempt_numbers
from trainer.config.settings import EPISODES_KEPT
from trainer.sharing.segment import MAX_SEGMENT_BYTES, name_of

#: So many attempts of a slot are read, the newest that gave anything: one that crashes at once again and again must not
#: hide what it gave.
LOOKED_AT = 3
#: Among so many of its newest: where none gives, no round lists hundreds of folders.
_MOST_LISTED = 30
_GIVEN = "episodes-"
_NAME = re.compile(r"([0-9]{9})-([0-9a-f]{64})")


@dataclass(frozen=True)
class GivenEpisode:
    """A file of slot `slot`, not opened yet. `sha256`: what its bytes must come to."""

    slot: int
    path: Path
    sha256: str


class Giving:
    """Writes the episodes of one attempt, and keeps the newest `kept` of its slot."""

    def __init__(self, job: Job, group: str, kept: int = EPISODES_KEPT) -> None:
        self._job = job
        self._folder = job.attempt_dir / f"{_GIVEN}{group}"
        self._kept = kept
        self._files: deque[Path] | None = None

    def give(self, number: int, data: bytes) -> None:
        """Write one durably, and clear the oldest away; nothing where a newer attempt has begun. Errors: OSError."""
        if self._job.superseded_by() is not None:
            return
        if self._files is None:
            make_folder(self._folder)
            self._files = deque(_given_before(self._job))
        path = self._folder / f"{number:09d}-{name_of(data)}"
        write_bytes(path, data)
        self._files.append(path)
        while len(self._files) > self._kept:
            oldest = self._files.popleft()
            with contextlib.suppress(FileNotFoundError):
                oldest.unlink()
            if oldest.parent != self._folder:
                with contextlib.suppress(OSError):  # others of it are still there
                    oldest.parent.rmdir()


def _given_before(job: Job) -> Iterator[Path]:
    """What attempts up to this one gave, oldest first."""
    for attempt in attempt_numbers(job.slot_dir):
        if attempt <= job.attempt:
            for folder in _folders(job.slot_dir / "attempts" / str(attempt), _GIVEN):
                yield from (folder / name for name in sorted(names_in(folder)) if _NAME.fullmatch(name))


def peers_of(job: Job) -> list[int]:
    """The numbers of the run's other slots that have begun. Errors: OSError."""
    names = os.listdir(job.run_dir / "slots")
    return sorted(int(name) for name in names if name.isdigit() and int(name) != job.slot)


def given_by(job: Job, slot: int, group: str) -> tuple[list[GivenEpisode], bool]:
    """(what `slot` gives, oldest first; whether its newest attempt that gives anything is of another group). Errors:
    OSError.
    """
    slot_dir = job.run_dir / "slots" / str(slot)
    newest = attempt_numbers(slot_dir)[: -_MOST_LISTED - 1 : -1]
    of_each = (_folders(slot_dir / "attempts" / str(attempt), _GIVEN) for attempt in newest)
    gave = list(islice(filter(None, of_each), LOOKED_AT))
    found: list[GivenEpisode] = []
    for folder in (folder for folders in reversed(gave) for folder in folders if folder.name == f"{_GIVEN}{group}"):
        matches = [match for name in sorted(names_in(folder)) if (match := _NAME.fullmatch(name))]
        found += [GivenEpisode(slot, folder / match[0], match[2]) for match in matches]
    return found, bool(gave) and all(folder.name != f"{_GIVEN}{group}" for folder in gave[0])


def read_given(one: GivenEpisode) -> bytes:
    """Its bytes; of a file that is too long, one more than a segment may have. Errors: OSError."""
    return read_regular(one.path, MAX_SEGMENT_BYTES + 1)


def _folders(folder: Path, prefix: str) -> list[Path]:
    return [folder / name for name in sorted(names_in(folder)) if name.startswith(prefix)]


def names_in(folder: Path) -> list[str]:
    """None where there is no such folder. Errors: OSError."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
