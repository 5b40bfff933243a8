"""Whole checkpoints on request: which ones, where they lie over there, and where they go here.

The run folder over there is asked which there are: of a running training few policies belong to a checkpoint. Where
`$SHARED` is the run folder's own `shared/` (the default), they lie beside it; where it is another place, nothing over
there says where the run folder is.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from syncd.errors import ConfigError, GoneError, RemoteError
from syncd.remote import Remote
from syncd.shared.layout import Shared
from syncd.store import newest

if TYPE_CHECKING:
    from syncd.transports.runner import Runner

#: The name of a run folder's own shared folder.
_DEFAULT_SHARED = "shared"
#: A checkpoint may be cleared away while it comes, for a newer one; more often than this it is another matter.
MOST_TRIES = 3


def run_folder_of(remote: Remote) -> str:
    """The run folder over there. Errors: ConfigError where `remote` does not tell."""
    if remote.is_local:
        raise ConfigError(
            f"--checkpoints: {remote} is on this machine, and so are its checkpoints: <run folder>/slots/"
        )
    parent, name = posixpath.split(remote.path.rstrip("/"))
    if name != _DEFAULT_SHARED:
        raise ConfigError(
            f"--checkpoints: {remote} is not called `{_DEFAULT_SHARED}`, and nothing says where the checkpoints are: "
            f"write <run folder>/{_DEFAULT_SHARED}, or fetch them with rsync from <run folder>/slots/"
        )
    return parent or "."


class _Logins:
    """Runners at one run folder, each as long as its login lasts: ssh ends one while gigabytes are checked here."""

    def __init__(self, remote: Remote, bwlimit: int) -> None:
        self._remote, self._bwlimit = remote, bwlimit
        self._runner: Runner | None = None

    def runner(self) -> Runner:
        """One that is logged in. Errors: those of `Runner`."""
        from syncd.transports.runner import Runner  # noqa: PLC0415 - rsync is for those who ask for it

        if self._runner is None or not self._runner.is_alive():
            self.close()
            self._runner = Runner(self._remote, self._bwlimit)
        return self._runner

    def close(self) -> None:
        """Never raises."""
        if self._runner is not None:
            self._runner.close()


def fetch_newest(
    remote: Remote, mirror: Path, runs: Collection[str], bwlimit: int = 0, *, trouble: Callable[[str], None]
) -> list[str]:
    """Bring the newest checkpoint of each slot to `DIR/checkpoints/<run id>/<slot>/<attempt>/<step>`; one line each.

    `runs`: those that are over there now. An interrupted one is gone on with. `bwlimit`: KiB a second, 0 for no limit.
    `trouble` hears of each that could not be brought, and why no more can be. Errors: ConfigError; those of
    `syncd.transports.bulk` but RemoteError, which is a trouble: what was pulled before is to be told.
    """
    logins = _Logins(remote.model_copy(update={"path": run_folder_of(remote)}), bwlimit)
    try:
        return list(_each(logins, remote, mirror, runs, trouble))
    finally:
        logins.close()


def _each(
    logins: _Logins, remote: Remote, mirror: Path, runs: Collection[str], trouble: Callable[[str], None]
) -> Iterator[str]:
    """See `fetch_newest`."""
    from syncd.transports.bulk import run_id_there, saved_there  # noqa: PLC0415 - see above

    try:
        slots = list(saved_there(logins.runner()))
        if not slots:
            yield "no checkpoint is there yet; ask again after the first one"
            return
        run_id = run_id_there(logins.runner()) or _guessed(mirror, runs)
        if run_id is None:
            trouble(f"{remote} has checkpoints; no run.json there and no policy here says which run they belong to")
            return
        for slot in slots:
            if line := _fetch_newest_of(logins, slot, run_id, mirror / "checkpoints", trouble):
                yield line
    except RemoteError as error:
        trouble(str(error))


def _guessed(mirror: Path, runs: Collection[str]) -> str | None:
    """The id of the run that keeps the run folder, where its record cannot be read: of `runs` the one that published
    last. A run that was begun anew in the same folder has the same slots, attempts and steps.
    """
    if len(runs) == 1:
        return next(iter(runs))
    places = (place for place in Shared(mirror).slots() if place.run_id in runs)
    found = [manifest for place in places if (manifest := newest(place)) is not None]
    return max(found, key=lambda manifest: manifest.created_at).run_id if found else None


def _fetch_newest_of(logins: _Logins, slot: int, run_id: str, folder: Path, trouble: Callable[[str], None]) -> str:
    """Bring the newest whole one of a slot; the line that says so, "" where none could be brought."""
    from syncd.transports.bulk import (  # noqa: PLC0415 - see above
        SavedAt,
        fetch_tree,
        path_in_run,
        saved_there,
        sweep_parts,
    )

    passed: list[SavedAt] = []
    why = "they are gone"
    for _ in range(MOST_TRIES):
        # Asked anew: while gigabytes come, newer ones take the place of older ones.
        runner = logins.runner()
        saved = next((one for one in saved_there(runner).get(slot, []) if one not in passed), None)
        if saved is None:
            break
        into = folder / run_id / str(slot) / str(saved.attempt) / str(saved.step)
        sweep_parts(folder / run_id / str(slot), into)
        try:
            fetch_tree(runner, path_in_run(slot, saved), into)
        except GoneError as error:
            passed.append(saved)
            why = str(error)
            continue
        others = f" (that of step {passed[-1].step:,} is gone, or damaged)" if passed else ""
        return f"checkpoint of step {saved.step:,} of {run_id}/{slot} → {into}{others}"
    trouble(f"no checkpoint of {run_id}/{slot} came whole ({why}); run this again")
    return ""
