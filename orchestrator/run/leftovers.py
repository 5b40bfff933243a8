"""What a run folder holds, and which parts no job needs any more: `status --disk` and `orchestrator clean`.

Nothing goes that a live job uses, that the next job may start from, or that the screens show of a slot's newest job.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from anchorleg.files import remove_folder
from anchorleg.job import Job, attempt_numbers
from orchestrator.decisions.models import Ledger, parse_token
from orchestrator.disk import numbers_in
from orchestrator.errors import ConfigError
from orchestrator.executors.base import Frozen
from orchestrator.executors.packed import PACK
from orchestrator.jobside import surplus
from orchestrator.run.ledger import load_ledger
from orchestrator.run.rundir import Run, RunDir, load_run
from orchestrator.run.submission import drop_job_folder

#: What is younger stays, unless somebody asks: they may want to look into its end.
OLDER_THAN_S = 7 * 86_400.0
#: A controller may be about to submit what is younger than this: its folder comes before its line in the ledger.
SETTLED_S = 600.0
KINDS = {
    "jobs": "scripts and output of ended jobs",
    "code": "copies of code that no job uses",
    "checkpoints": "old checkpoints of your program",
}


class Leftover(Frozen):
    """A file or folder that can be removed. `at`: when something in it last changed (unix seconds)."""

    kind: str
    path: str
    bytes: int
    at: float


class DiskView(Frozen):
    """The bytes that each part of the run folder takes, and what can be removed."""

    path: str
    parts: dict[str, int]
    leftovers: tuple[Leftover, ...]

    @property
    def total(self) -> int:
        """Bytes of the whole run folder."""
        return sum(self.parts.values())


def disk_view(
    run_dir: RunDir, *, older_than_s: float = OLDER_THAN_S, larger_than: int = 0, keep: int | None = None
) -> DiskView:
    """`larger_than`: bytes of the smallest that goes. `keep`: newest checkpoints of an own program that stay in each
    slot without a job; None: all. Errors: ConfigError; UnknownRun, RunFolderError; OSError.
    """
    run = load_run(run_dir)
    if keep is not None and run.config.command is None:
        raise ConfigError("clean.keep-of-the-trainer")
    names = run_dir.disk.names(run_dir.path)
    parts = {name: measured(run_dir.path / name)[0] for name in sorted(names) if (run_dir.path / name).is_dir()}
    files = [run_dir.path / name for name in names if name not in parts]
    parts["history"] = sum(measured(path)[0] for path in files)
    ledger = load_ledger(run_dir, run.run_id) or Ledger(run_id=run.run_id, epoch=0)
    before = time.time() - max(older_than_s, SETTLED_S)
    found = (*_jobs(run_dir, ledger), *_code(run, run_dir, ledger), *_checkpoints(run_dir, ledger, keep))
    going = tuple(one for one in found if one.at < before and one.bytes >= larger_than)
    return DiskView(path=str(run_dir.path), parts=parts, leftovers=going)


def clean(run_dir: RunDir, leftovers: tuple[Leftover, ...]) -> None:
    """Remove them. Errors: OSError."""
    for one in leftovers:
        if one.kind == "jobs":
            drop_job_folder(run_dir, Path(one.path).name)
        else:
            remove_folder(Path(one.path))


def measured(path: Path) -> tuple[int, float]:
    """The bytes that a file or folder takes on its disk, and when something in it last changed."""
    found = [os.lstat(path)]
    if stat.S_ISDIR(found[0].st_mode):
        for where, _, names in os.walk(path):
            for name in names:
                try:
                    found.append(os.lstat(os.path.join(where, name)))
                except FileNotFoundError:
                    continue
    return sum(one.st_blocks * 512 for one in found), max(one.st_mtime for one in found)


def _leftover(kind: str, path: Path) -> Leftover:
    size, at = measured(path)
    return Leftover(kind=kind, path=str(path), bytes=size, at=at)


def _live(ledger: Ledger) -> set[str]:
    return {one.token for slot in ledger.slots for attempt in slot.attempts for one in attempt.live}


def _jobs(run_dir: RunDir, ledger: Ledger) -> Iterator[Leftover]:
    """Folders of ended jobs, but for the newest of each slot, which `logs` shows."""
    live, newest = _live(ledger), dict[int, tuple[int, str]]()
    tokens = {token: place for token in run_dir.disk.names(run_dir.jobs) if (place := parse_token(token)) is not None}
    for token, (slot, attempt) in tokens.items():
        newest[slot] = max(newest.get(slot, (-1, "")), (attempt, token))
    staying = live | {token for _, token in newest.values()}
    yield from (_leftover("jobs", run_dir.job(token)) for token in sorted(tokens.keys() - staying))
    for pack in (run_dir.job(name) for name in run_dir.disk.names(run_dir.jobs) if name.startswith(PACK)):
        if not any(token in run_dir.disk.read(path).decode() for path in pack.glob("members/*") for token in live):
            yield _leftover("jobs", pack)


def _code(run: Run, run_dir: RunDir, ledger: Ledger) -> Iterator[Leftover]:
    """Copies of code that neither the run nor a live job names."""
    used = {run.code, *((run.snapshot.program,) if run.snapshot else ())}
    texts = []
    for token in _live(ledger):
        for name in ("job.sh", "job.json"):
            try:
                texts.append(run_dir.disk.read(run_dir.job(token) / name).decode(errors="replace"))
            except FileNotFoundError:
                continue
    for name in sorted(run_dir.disk.names(run_dir.code)):
        copy = name.removesuffix(".diff")
        if copy not in used and not any(f"/{copy}" in text for text in texts):
            yield _leftover("code", run_dir.code / name)


def _checkpoints(run_dir: RunDir, ledger: Ledger, keep: int | None) -> Iterator[Leftover]:
    """Of slots without a job: a job tidies its slot itself, where `relay.keep_checkpoints` says so."""
    busy = {slot.index for slot in ledger.slots if slot.occupied}
    for slot in numbers_in(run_dir.disk, run_dir.path / "slots") if keep is not None else ():
        attempts = attempt_numbers(run_dir.slot(slot))
        if slot not in busy and attempts:
            for path in surplus(Job(run_dir.path, slot, attempts[-1]), keep or 0):
                yield _leftover("checkpoints", path)
