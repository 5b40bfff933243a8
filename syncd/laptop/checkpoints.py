"""Whole checkpoints on request: which ones, where they lie over there, and where they go here.

The run folder over there is asked which there are: of a running training few policies belong to a checkpoint. Where
`$SHARED` is the run folder's own `shared/` (the default), they lie beside it; where it is another place, nothing over
there says where the run folder is. Our server brings them over the connection that there is; `syncd pull --rsync`
has them by rsync (`syncd.laptop.rsync`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from anchorleg.files import fsync_folder, fsync_tree, read_json_or_none
from syncd.errors import GoneError, RemoteError, StorageError
from syncd.shared.layout import SAVED_FILE, SavedAt, is_nearly_full, make_own_folder, path_in_run, writing
from syncd.wire.arrivals import Offer
from syncd.wire.session import Session

_MANIFEST = "manifest.json"
#: One has a line for each file.
_MANIFEST_BYTES = 16 * 2**20
#: Ends the name of one that is still to come whole here.
_PART = ".part"


class CheckpointSource(Protocol):
    """Where whole checkpoints come from. Errors of each: UnreachableError, RemoteError."""

    def saved(self) -> dict[int, list[SavedAt]]:
        """Slot → its newest checkpoints, the newest first; slots without one are left out."""
        ...

    def run_id(self) -> str | None:
        """The id of the run that they are of, as far as it is told; `saved` was asked before."""
        ...

    def bring(self, slot: int, saved: SavedAt, arriving: Path) -> bool:
        """Bring the files of one into the folder `arriving`, going on with what is there; whether all of them came."""
        ...


class ServedCheckpoints:
    """By our server. The connection is the caller's."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sizes: dict[tuple[int, SavedAt], int] = {}
        self._run_id: str | None = None

    def saved(self) -> dict[int, list[SavedAt]]:
        """See `CheckpointSource`."""
        found: dict[int, list[SavedAt]] = {}
        while True:
            first = max(found, default=-1) + 1
            told = self._session.saved(first)
            if told.sentence:
                raise RemoteError("peer.refuses", sentence=told.sentence)
            self._run_id = told.run_id
            if not any(one.slot >= first for one in told.slots):
                return {slot: saved for slot, saved in found.items() if saved}
            for one in told.slots:
                found[one.slot] = [SavedAt(attempt, step) for attempt, step, _ in one.saved]
                self._sizes |= {(one.slot, SavedAt(attempt, step)): size for attempt, step, size in one.saved}

    def run_id(self) -> str | None:
        """See `CheckpointSource`."""
        return self._run_id

    def bring(self, slot: int, saved: SavedAt, arriving: Path) -> bool:
        """See `CheckpointSource`. Errors: StorageError, too."""
        path, size = path_in_run(slot, saved), self._sizes[slot, saved]
        if size > _MANIFEST_BYTES:
            return False
        try:
            self._session.fetch(Offer(f"{path}/{_MANIFEST}", size, None, "metrics"), arriving / _MANIFEST)
            for name, record in _files_of(arriving).items():
                length = record.get("bytes") if isinstance(record, dict) else None
                if (
                    not SAVED_FILE.fullmatch(f"{path}/{name}")
                    or not isinstance(length, int)
                    or not 0 <= length <= 2**53
                ):
                    return False
                if is_nearly_full(arriving, length):
                    raise StorageError("mirror.disk-full", path=arriving)
                self._session.fetch(Offer(f"{path}/{name}", length, None, "blob"), arriving / name)
        except GoneError:
            return False
        return True


def fetch_newest(source: CheckpointSource, mirror: Path, *, trouble: Callable[[str], None]) -> list[str]:
    """Bring the newest checkpoint of each slot to `DIR/checkpoints/<run id>/<slot>/<attempt>/<step>`; one line each.

    An interrupted one is gone on with. `trouble` hears of each that could not be brought, and why no more can be.
    Errors: UnreachableError, StorageError; a RemoteError is a trouble: what was pulled before is to be told.
    """
    return list(_each(source, mirror, trouble))


def _each(source: CheckpointSource, mirror: Path, trouble: Callable[[str], None]) -> Iterator[str]:
    """See `fetch_newest`."""
    try:
        slots = list(source.saved())
        if not slots:
            yield "there is no checkpoint yet: ask again after the first one"
            return
        if (run_id := source.run_id()) is None:
            trouble("there are checkpoints, but no readable run.json says which run they belong to")
            return
        for slot in slots:
            if line := _fetch_newest_of(source, slot, run_id, mirror / "checkpoints", trouble):
                yield line
    except RemoteError as error:
        trouble(str(error))


def _fetch_newest_of(
    source: CheckpointSource, slot: int, run_id: str, folder: Path, trouble: Callable[[str], None]
) -> str:
    """Bring the newest of a slot; the line that says so, "" where it could not be brought whole."""
    # Asked anew: while gigabytes came of another slot, a newer one took its place.
    saved = next(iter(source.saved().get(slot, [])), None)
    if saved is None:
        return ""
    into = folder / run_id / str(slot) / str(saved.attempt) / str(int(saved.step))
    _sweep_parts(folder / run_id / str(slot), into)
    try:
        _fetch(source, slot, saved, into)
    except GoneError as error:
        trouble(f"no checkpoint of {run_id}/{slot} arrived complete ({error}); run this again")
        return ""
    return f"checkpoint of step {int(saved.step):,} of {run_id}/{slot} → {into}"


def _fetch(source: CheckpointSource, slot: int, saved: SavedAt, into: Path) -> None:
    """Bring one to `into`; resumable. What its `manifest.json` says of its files (sha256) is checked; only then has it
    the name `into`.

    Errors: GoneError where it is not there, changed meanwhile, or has its nets alone left; UnreachableError (what
    arrived stays), RemoteError, StorageError.
    """
    if (into / _MANIFEST).exists():
        return
    arriving = into.with_name(into.name + _PART)
    make_own_folder(arriving)
    is_whole = source.bring(slot, saved, arriving)
    damaged = _damaged(arriving)
    if damaged or not is_whole:
        shutil.rmtree(arriving, ignore_errors=True)
        raise GoneError("checkpoint.gone", path=path_in_run(slot, saved), why=damaged or "it is incomplete")
    with writing(into):
        fsync_tree(arriving)
        os.replace(arriving, into)
        fsync_folder(into.parent)


def _sweep_parts(slot: Path, wanted: Path) -> None:
    """Delete what came in part of other checkpoints than `wanted`: of attempts or steps that nobody fetches any more.

    `slot`: its folder here, `<attempt>/<step>` below it. What cannot be deleted stays.
    """
    for part in slot.glob(f"*/*{_PART}"):
        if part != wanted.with_name(wanted.name + _PART):
            shutil.rmtree(part, ignore_errors=True)
    for attempt in slot.glob("*"):
        with contextlib.suppress(OSError):
            attempt.rmdir()  # an empty one alone


def _damaged(folder: Path) -> str:
    """The first file that is not what `manifest.json` says, or that most are cleared away; "" where all are there.

    Errors: OSError.
    """
    sealed = folder / _MANIFEST
    if sealed.exists() and sealed.stat().st_size > _MANIFEST_BYTES:
        return sealed.name
    manifest: Any = read_json_or_none(sealed)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return _MANIFEST
    if manifest.get("kind") == "policy":
        return "only its networks are left"
    for name, record in manifest["files"].items():
        try:
            with open(folder / Path(name).name, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != record["sha256"]:
                    return str(name)
        except (OSError, KeyError, TypeError):
            return str(name)
    return ""


def _files_of(folder: Path) -> dict[str, Any]:
    """What `manifest.json` lists; {} where it cannot be read, which `_damaged` says."""
    manifest: Any = read_json_or_none(folder / _MANIFEST)
    files = manifest.get("files") if isinstance(manifest, dict) and manifest.get("kind") != "policy" else None
    return files if isinstance(files, dict) else {}
