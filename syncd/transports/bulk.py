"""Whole checkpoints by rsync: which there are over there, and bringing one. Over one login, that of a `Runner`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.files import fsync_folder, fsync_tree, read_json_or_none
from syncd.errors import GoneError, RemoteError, StorageError
from syncd.shared.layout import NAME, SLOT
from syncd.transports.runner import BULK_TIMEOUT_S, PARTIAL_CODES, PARTIAL_DIR, FolderBounds, Runner, complaint

#: A checkpoint's has a line for each file, a run's record one for each experiment.
_MANIFEST_BYTES = 16 * 2**20
#: Of a run folder's `slots/`: the folders of checkpoints, empty, and none beside them.
_FILTERS = (
    "--include=/*/",
    "--include=/*/attempts/",
    "--include=/*/attempts/*/",
    "--include=/*/attempts/*/checkpoints/",
    "--include=/*/attempts/*/checkpoints/*/",
    "--exclude=*",
)
#: Ten thousand jobs with some checkpoints each have fewer. Nothing of them has a size.
_MOST_FOLDERS = 100_000
_MOST_BYTES = 2**20
#: Ends the name of one that is still to come whole here.
_PART = ".part"
#: Of attempts and steps. A checkpoint that is not whole yet has another name.
_NUMBER = re.compile("[0-9]{1,15}")


class SavedAt(NamedTuple):
    """Which checkpoint of a slot. Later ones compare greater."""

    attempt: int
    step: int


def path_in_run(slot: int, saved: SavedAt) -> str:
    """Where it lies in its run folder."""
    return f"slots/{slot}/attempts/{saved.attempt}/checkpoints/{saved.step}"


def saved_there(runner: Runner) -> dict[int, list[SavedAt]]:
    """Slot → its checkpoints, the newest first, of the run folder that `runner` is at; slots without one are left out.

    Errors: RemoteError where that is no run folder, or cannot be looked at; UnreachableError.
    """
    names = runner.folder / "saved"
    shutil.rmtree(names, ignore_errors=True)
    bounds = FolderBounds(names, runner.place, _MOST_FOLDERS, _MOST_BYTES)
    done = runner.run(["-r", *_FILTERS, runner.there("slots/"), f"{names}/"], timeout_s=BULK_TIMEOUT_S, bounds=bounds)
    runner.insist(done, *PARTIAL_CODES)
    found: dict[int, list[SavedAt]] = {}
    for path in names.glob("*/attempts/*/checkpoints/*"):
        slot, _, attempt, _, step = path.relative_to(names).parts
        if SLOT.fullmatch(slot) and _NUMBER.fullmatch(attempt) and _NUMBER.fullmatch(step):
            found.setdefault(int(slot), []).append(SavedAt(int(attempt), int(step)))
    if done.returncode and not found:
        raise RemoteError(f"no checkpoints can be looked for in {runner.remote}/slots/ ({complaint(done)})")
    return {slot: sorted(found[slot], reverse=True) for slot in sorted(found)}


def run_id_there(runner: Runner) -> str | None:
    """The id of the run whose folder `runner` is at, by its `run.json`; None where that is not there, or not for us.

    Errors: RemoteError, UnreachableError.
    """
    record = runner.folder / "record"
    shutil.rmtree(record, ignore_errors=True)
    words = ["-r", "--include=/run.json", "--exclude=*", f"--max-size={_MANIFEST_BYTES}"]
    bounds = FolderBounds(record, runner.place, _MOST_FOLDERS, _MANIFEST_BYTES)
    try:
        done = runner.run([*words, runner.there(""), f"{record}/"], timeout_s=BULK_TIMEOUT_S, bounds=bounds)
        runner.insist(done, *PARTIAL_CODES)
        value: Any = read_json_or_none(record / "run.json")
    finally:
        shutil.rmtree(record, ignore_errors=True)  # it has the run's environment
    run_id = value.get("run_id") if isinstance(value, dict) else None
    return run_id if isinstance(run_id, str) and NAME.fullmatch(run_id) else None


def fetch_tree(runner: Runner, path: str, into: Path) -> None:
    """Bring the folder `path` to `into`, which must not exist or be from before; resumable. `path`: absolute over
    there, or relative to the folder that `runner` is at.

    What its `manifest.json` says of its files (sha256) is checked; only then has it the name `into`.
    Errors: GoneError where it is not there, changed meanwhile, or has its nets alone left; UnreachableError (what
    arrived stays), RemoteError, StorageError.
    """
    if (into / "manifest.json").exists():
        return
    arriving = into.with_name(into.name + _PART)
    try:
        arriving.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{arriving} cannot be made ({error.strerror})") from error
    words = ["-rt", PARTIAL_DIR, runner.there(f"{path.rstrip('/')}/"), f"{arriving}/"]
    bounds = FolderBounds(arriving, runner.place)
    done = runner.insist(runner.run(words, timeout_s=BULK_TIMEOUT_S, bounds=bounds), *PARTIAL_CODES)
    damaged = _damaged(arriving)
    if done.returncode or damaged:
        shutil.rmtree(arriving, ignore_errors=True)
        raise GoneError(
            f"{path} is gone over there, or changed while it was fetched" + (f" ({damaged})" * bool(damaged))
        )
    try:
        fsync_tree(arriving)
        os.replace(arriving, into)
        fsync_folder(into.parent)
    except OSError as error:
        raise StorageError(f"{into} cannot be written ({error.strerror})") from error


def sweep_parts(slot: Path, wanted: Path) -> None:
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
    sealed = folder / "manifest.json"
    if sealed.exists() and sealed.stat().st_size > _MANIFEST_BYTES:
        return sealed.name
    manifest: Any = read_json_or_none(sealed)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return "manifest.json"
    if manifest.get("kind") == "policy":
        return "its nets alone are left"
    for name, record in manifest["files"].items():
        try:
            with open(folder / Path(name).name, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != record["sha256"]:
                    return str(name)
        except (OSError, KeyError, TypeError):
            return str(name)
    return ""
