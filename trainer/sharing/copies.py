"""Copies of what other slots gave, and what they have learned, in the attempt's own folder, so that a resume depends on
nobody else::

    slots/<k>/attempts/<a>/taken/<sha256>   until two checkpoints have what came of it
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from anchorleg.files import make_folder, write_bytes
from anchorleg.job import Job, attempt_numbers, candidates_before
from trainer.checkpoints.checkpoint import read_contents, read_manifest
from trainer.checkpoints.resume import training_of
from trainer.config.training import Training, group_identity
from trainer.errors import DamagedCheckpointError
from trainer.history.read import tells_success
from trainer.sharing.reader import InflowSource
from trainer.sharing.segment import name_of

_TAKEN = "taken"


class Copies(InflowSource):
    """Makes copies before anything of other slots enters, and removes those that no resume needs any more, also where
    the slot takes nothing of them by now. `keep` is for the reader's thread, the rest for the loop's.
    """

    where = "obsolete copies of other slots' episodes"

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
        folder = self._job.attempt_dir / _TAKEN
        make_folder(folder)
        write_bytes(folder / sha256, data)
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
        job, own = self._job, self._job.attempt_dir / _TAKEN
        if self._is_complete:
            clear_taken(job)
        if self._older is not None:
            older = self._older
            clear_taken(job, lambda path: path.parent != own and path.name not in older)
            for folder in _taken_folders(job):
                if folder != own:
                    with contextlib.suppress(OSError):  # it is needed still, or was removed before
                        folder.rmdir()
            self._older = None
        with self._lock:
            done = {*self._done}
        clear_taken(job, lambda path: path.name in done)
        with self._lock:
            self._done -= done


def read_taken(job: Job, sha256: str) -> bytes:
    """What this attempt, or one that it descends from, copied. Errors: OSError; ValueError where it is another file."""
    for folder in reversed(_taken_folders(job)):
        try:
            data = (folder / sha256).read_bytes()
        except FileNotFoundError:
            continue
        if name_of(data) != sha256:
            raise ValueError(f"{sha256[:12]}… has changed since it was accepted")
        return data
    raise FileNotFoundError(2, f"{sha256[:12]}… was not accepted")


def clear_taken(job: Job, goes: Callable[[Path], bool] = lambda _: True) -> None:
    """Remove all copies of the slot that `goes` says; none where a newer attempt has begun, which may need them.
    Errors: OSError.
    """
    for path in [folder / name for folder in _taken_folders(job) for name in names_in(folder)]:
        if goes(path):
            if job.superseded_by() is not None:
                return
            path.unlink(missing_ok=True)


def _taken_folders(job: Job) -> list[Path]:
    """Of all attempts up to this one, oldest first; they need not exist."""
    attempts = [attempt for attempt in attempt_numbers(job.slot_dir) if attempt <= job.attempt]
    return [job.slot_dir / "attempts" / str(attempt) / _TAKEN for attempt in attempts]


def names_in(folder: Path) -> list[str]:
    """None where there is no such folder. Errors: OSError."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


@dataclass(frozen=True)
class OtherLearner:
    """What a slot has learned, out of a checkpoint after so many `updates`: `data` holds tensors, as safetensors."""

    slot: int
    attempt: int
    step: int
    updates: int
    data: bytes

    @property
    def version(self) -> tuple[int, int]:
        """Attempt and step of its checkpoint."""
        return self.attempt, self.step


def is_comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both evaluations (rows of `evaluations.jsonl`) tell success, and were made alike."""
    return (
        tells_success(one)
        and tells_success(other)
        and one["goals_per_task"] == other["goals_per_task"]
        and one.get("horizon") == other.get("horizon")
        and set(one["success"]) == set(other["success"])
    )


def find_learner(
    slot_dir: Path,
    slot: int,
    training: Training,
    wanted: Callable[[str], bool] = lambda _: True,
    known: tuple[int, int] | None = None,
) -> OtherLearner | None:
    """The learner of the slot's newest good checkpoint, its tensors whose names are `wanted`; None: there is none, it
    is that of attempt and step `known`, or it trains something else.

    Errors: OSError, ValueError.
    """
    for ref in candidates_before(slot_dir, max(attempt_numbers(slot_dir), default=-1) + 1):
        if (ref.attempt, ref.step) == known:
            return None
        try:
            manifest = read_manifest(ref.path)
            if manifest.kind != "exact":
                continue
            if group_identity(training_of(manifest)) != group_identity(training):
                return None
            parts = read_contents(ref.path, manifest).parts
            tensors = {name: tensor for name, tensor in parts["algorithm"].tensors.items() if wanted(name)}
        except DamagedCheckpointError:
            continue  # or cleared away meanwhile
        if is_finite(tensors):
            updates = int(parts["run"].numbers["updates"])
            return OtherLearner(slot, ref.attempt, ref.step, updates, safetensors.torch.save(tensors))
    return None


def tensors_in(data: bytes) -> dict[str, Tensor]:
    """Of `OtherLearner.data`. Errors: ValueError."""
    try:
        found: dict[str, Tensor] = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from None
    return found


def is_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all numbers of it are."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values() if tensor.is_floating_point())
