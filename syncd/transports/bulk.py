"""Whole checkpoints by rsync: which there are over there, and bringing one. Over one login, that of a `Runner`."""

from __future__ import annotations

import shutil
from pathlib import Path

from syncd.errors import RemoteError
from syncd.shared.saved import SavedAt, newest_saved, run_id_of, slots_in
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


def saved_there(runner: Runner) -> dict[int, list[SavedAt]]:
    """Slot → its checkpoints, the newest first, of the run folder that `runner` is at; slots without one are left out.

    Errors: RemoteError where that is no run folder, or cannot be looked at; UnreachableError.
    """
    names = runner.folder / "saved"
    shutil.rmtree(names, ignore_errors=True)
    bounds = FolderBounds(names, runner.place, _MOST_FOLDERS, _MOST_BYTES)
    done = runner.run(["-r", *_FILTERS, runner.there("slots/"), f"{names}/"], timeout_s=BULK_TIMEOUT_S, bounds=bounds)
    runner.insist(done, *PARTIAL_CODES)
    found = {slot: saved for slot in slots_in(names) if (saved := newest_saved(names, slot))}
    if done.returncode and not found:
        raise RemoteError(f"no checkpoints can be looked for in {runner.remote}/slots/ ({complaint(done)})")
    return found


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
        return run_id_of(record)
    finally:
        shutil.rmtree(record, ignore_errors=True)  # it has the run's environment


def bring_tree(runner: Runner, path: str, arriving: Path) -> bool:
    """Bring what the folder `path` has into `arriving`; whether all of it came. Resumable. `path`: absolute over there,
    or relative to the folder that `runner` is at. Errors: UnreachableError (what arrived stays), RemoteError.
    """
    words = ["-rt", PARTIAL_DIR, runner.there(f"{path.rstrip('/')}/"), f"{arriving}/"]
    bounds = FolderBounds(arriving, runner.place)
    done = runner.run(words, timeout_s=BULK_TIMEOUT_S, bounds=bounds)
    return not runner.insist(done, *PARTIAL_CODES).returncode
