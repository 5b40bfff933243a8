"""The runs that were started from this account, so that `status`, `stop` and `logs` work from any folder.

One small file a run in `$XDG_STATE_HOME/anchorleg/runs/` (default `~/.local/state`). Losing it loses nothing:
`--config` always works.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from anchorleg.files import write_json
from anchorleg.places import runs_folder
from anchorleg.words import did_you_mean
from orchestrator.decisions.evidence import Lenient
from orchestrator.errors import UnknownRun
from orchestrator.executors.base import Frozen
from orchestrator.run.evidence import read_record
from orchestrator.run.rundir import Run, RunDir


class Entry(Frozen):
    """One run that was started here."""

    run_id: str
    run_name: str
    run_dir: str
    registered_at: float


class _RunId(Lenient):
    run_id: str


def register(run: Run, run_dir: RunDir, now: float, environ: Mapping[str, str] = os.environ) -> None:
    """Remember a run. A home folder that cannot be written costs the comfort, not the run."""
    folder = runs_folder(environ)
    entry = Entry(run_id=run.run_id, run_name=run.config.run_name, run_dir=str(run_dir.path), registered_at=now)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{run.run_id}.json", entry.model_dump())
    except OSError:
        return


def entries(environ: Mapping[str, str] = os.environ) -> list[Entry]:
    """All runs that still have their folder, newest first."""
    records = (read_record(Entry, path) for path in sorted(runs_folder(environ).glob("*.json")))
    known: list[Entry] = [entry for entry in records if entry is not None]
    return sorted((entry for entry in known if _is_there(entry)), key=lambda entry: -entry.registered_at)


def _is_there(entry: Entry) -> bool:
    """Whether its folder still holds that very run: folders are wiped and used again."""
    record = read_record(_RunId, RunDir(Path(entry.run_dir)).run_file)
    return record is not None and record.run_id == entry.run_id


def find_run(name: str, environ: Mapping[str, str] = os.environ) -> RunDir:
    """The folder of the newest run of that name or id. Errors: UnknownRun."""
    known = entries(environ)
    for entry in known:
        if name in {entry.run_name, entry.run_id}:
            return RunDir(Path(entry.run_dir))
    hint = did_you_mean(name, {entry.run_name for entry in known}, "see the known ones with `orchestrator runs`.")
    raise UnknownRun("run.unknown", name=name, near=hint)
