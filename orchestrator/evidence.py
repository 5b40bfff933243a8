"""What the jobs themselves wrote: the first and cheapest source, and the only one that proves a clean end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from orchestrator.disk import LOCAL_DISK, Disk, read_json_or_none
from orchestrator.executors.base import Frozen
from orchestrator.models import Ledger
from orchestrator.rundir import RunDir


class Lenient(Frozen):
    """A record written by a job: fields that we do not use may be there."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Claim(Lenient):
    """The winner of an attempt."""

    token: str | None
    job_id: str
    host: str
    pid: int
    at: float


class Exit(Lenient):
    """How the claimant's program ended. `code` is negative for a signal."""

    token: str | None
    code: int
    at: float
    started_at: float | None = None
    asked: str | None = None
    asked_at: float | None = None
    first_progress_at: float | None = None
    superseded_by: int | None = None
    words: str = ""


class Progress(Lenient):
    """`progress.json`, where the program writes one."""

    step: int
    total: int
    checkpoint_step: int
    at: float = 0.0


class Beat(Lenient):
    """`heartbeat.json`: a number that grows."""

    beat: int


class Parent(Lenient):
    """`parent.json`: what the attempt started from."""

    step: int


class Duplicate(Lenient):
    """The record of a job that found the attempt taken."""

    token: str


class Evidence(Frozen):
    """Everything in one attempt's folder that the controller uses. `newest_checkpoint`: step of a published folder.

    `log_tail`: the end of the claimant's error output: a job that was killed leaves no other word.
    """

    claim: Claim | None = None
    exit: Exit | None = None
    progress: Progress | None = None
    beat: int = -1
    start_step: int = 0
    newest_checkpoint: int | None = None
    duplicates: tuple[str, ...] = ()
    log_tail: str = ""


#: What fits a terminal and holds the last lines of a traceback.
LOG_TAIL_BYTES = 4096


def read_evidence(run_dir: RunDir, slot: int, attempt: int, token: str | None = None) -> Evidence:
    """Read one attempt's folder. Absent and torn files are absences: they prove nothing.

    `token`: whose log to read while nobody has claimed the attempt.
    """
    disk, folder = run_dir.disk, run_dir.attempt(slot, attempt)
    names = set(disk.names(folder))

    def record(model: type[Any], name: str) -> Any:
        return read_record(model, folder / name, disk) if name in names else None

    heartbeat, parent = record(Beat, "heartbeat.json"), record(Parent, "parent.json")
    claim, ended = record(Claim, "claim"), record(Exit, "exit.json")
    duplicates = (record(Duplicate, name) for name in names if name.startswith("duplicate-") and name.endswith(".json"))
    steps = [int(name) for name in disk.names(folder / "checkpoints") if name.isdigit()] if names else []
    speaker = claim.token if claim is not None else token
    return Evidence(
        claim=claim,
        exit=ended,
        progress=record(Progress, "progress.json"),
        beat=heartbeat.beat if heartbeat else -1,
        start_step=parent.step if parent else 0,
        newest_checkpoint=max(steps, default=None),
        duplicates=tuple(sorted(found.token for found in duplicates if found is not None)),
        log_tail=log_tail(run_dir, speaker) if speaker else "",
    )


def read_all(run_dir: RunDir, ledger: Ledger) -> dict[tuple[int, int], Evidence]:
    """Evidence of every attempt that the ledger still thinks open, by (slot, attempt)."""
    return {
        (slot.index, attempt.number): read_evidence(
            run_dir, slot.index, attempt.number, attempt.submissions[-1].token if attempt.submissions else None
        )
        for slot in ledger.slots
        for attempt in slot.attempts
        if attempt.verdict is None or attempt.live
    }


def highest_attempt_folder(run_dir: RunDir, slot: int) -> int:
    """The highest attempt that left a folder; -1 where none did. A ledger that knows less is behind the truth."""
    names = run_dir.disk.names(run_dir.slot(slot) / "attempts")
    return max((int(name) for name in names if name.isdigit()), default=-1)


def log_tail(run_dir: RunDir, token: str) -> str:
    """The last lines of a job's error output."""
    folder = run_dir.job(token)
    names = sorted(name for name in run_dir.disk.names(folder) if name.startswith("job-") and name.endswith(".err"))
    if not names:
        return ""
    try:
        return run_dir.disk.tail(folder / names[-1], LOG_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def read_record(model: type[Any], path: Path, disk: Disk = LOCAL_DISK) -> Any:
    """The record in `path`, None where it is absent, torn or of another shape."""
    value = read_json_or_none(disk, path)
    try:
        return model.model_validate(value) if value is not None else None
    except ValueError:
        return None
