"""Copies of what other slots gave, in the attempt's own folder, so that a resume depends on nobody else::

slots/<k>/attempts/<a>/taken/<sha256>   until two checkpoints have what came of it
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable
from pathlib import Path

from anchorleg.files import make_folder, write_bytes
from anchorleg.job import Job, attempt_numbers
from trainer.sharing.episodes import names_in
from trainer.sharing.reader import InflowSource
from trainer.sharing.segment import name_of

_TAKEN = "taken"


class Copies(InflowSource):
    """Makes copies before anything of other slots enters, and removes those that no resume needs any more, also where
    the slot takes nothing of them by now. `keep` is for the reader's thread, the rest for the loop's.
    """

    where = "copies of what other slots gave, which only take room,"

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._older: Collection[str] | None = None
        self._is_complete = False
        self._waiting: set[str] = set()
        self._done: set[str] = set()
        self._lock = threading.Lock()

    @property
    def is_idle(self) -> bool:
        return self._older is None and not self._done and not self._is_complete

    def begin(self, needed: Collection[str]) -> None:
        """What older attempts copied and did not come to take may go, but for the files `needed`."""
        self._older = needed

    def keep(self, data: bytes) -> str:
        """Copy what may be about to enter, durably; its sha256. It stays until it has `entered`. Errors: OSError."""
        sha256 = name_of(data)
        with self._lock:
            self._waiting.add(sha256)
            self._done.discard(sha256)
        keep_taken(self._job, sha256, data)
        return sha256

    def entered(self, files: Iterable[str]) -> None:
        """These do not wait any more: the journal names them, or they are not wanted."""
        with self._lock:
            self._waiting.difference_update(files)

    def counted(self, files: Iterable[str]) -> None:
        """Two checkpoints have what came of these, or nothing did: they may go, unless they wait to enter again."""
        with self._lock:
            self._done.update({*files} - self._waiting)

    def complete(self) -> None:
        """The training is complete: no copy is needed any more, whether it was taken or not."""
        self._is_complete = True

    def look(self) -> None:
        if self._is_complete:
            clear_all(self._job)
        if self._older is not None:
            clear_older(self._job, but=self._older)
            self._older = None
        with self._lock:
            done = {*self._done}
        clear_taken(self._job, done)
        with self._lock:
            self._done -= done


def keep_taken(job: Job, sha256: str, data: bytes) -> None:
    """Copy what is about to be taken, durably. Errors: OSError."""
    folder = job.attempt_dir / _TAKEN
    make_folder(folder)
    write_bytes(folder / sha256, data)


def read_taken(job: Job, sha256: str) -> bytes:
    """What this attempt, or one that it descends from, copied. Errors: OSError; ValueError where it is another file."""
    for folder in reversed(_taken_folders(job)):
        try:
            data = (folder / sha256).read_bytes()
        except FileNotFoundError:
            continue
        if name_of(data) != sha256:
            raise ValueError(f"{sha256[:12]}… is not what was taken")
        return data
    raise FileNotFoundError(2, f"{sha256[:12]}… is not among what was taken")


def clear_taken(job: Job, files: Collection[str]) -> None:
    """Remove the copies of `files`. Errors: OSError."""
    _remove(job, [path for path in _taken(job) if path.name in files])


def clear_older(job: Job, but: Collection[str]) -> None:
    """Remove what older attempts copied, but for the files `but`, and their empty folders. Errors: OSError."""
    own = job.attempt_dir / _TAKEN
    _remove(job, [path for path in _taken(job) if path.parent != own and path.name not in but])
    for folder in _taken_folders(job):
        if folder != own:
            with contextlib.suppress(OSError):  # it is needed still, or was removed before
                folder.rmdir()


def clear_all(job: Job) -> None:
    """Remove all that the slot copied. Errors: OSError."""
    _remove(job, _taken(job))


def _remove(job: Job, paths: Iterable[Path]) -> None:
    """None where a newer attempt has begun, which may need them."""
    for path in paths:
        if job.superseded_by() is not None:
            return
        path.unlink(missing_ok=True)


def _taken(job: Job) -> list[Path]:
    return [folder / name for folder in _taken_folders(job) for name in names_in(folder)]


def _taken_folders(job: Job) -> list[Path]:
    """Of all attempts up to this one, oldest first; they need not exist."""
    attempts = [attempt for attempt in attempt_numbers(job.slot_dir) if attempt <= job.attempt]
    return [job.slot_dir / "attempts" / str(attempt) / _TAKEN for attempt in attempts]
