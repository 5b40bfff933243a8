"""What the jobs themselves wrote: the first and cheapest source, and the only one that proves a clean end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from orchestrator.executors.base import Frozen
from orchestrator.files import read_json_or_none
from orchestrator.job import attempt_numbers, checkpoints_of
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
    asked: str | None = None
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
    folder = run_dir.attempt(slot, attempt)
    heartbeat = read_record(Beat, folder / "heartbeat.json")
    parent = read_record(Parent, folder / "parent.json")
    checkpoints = checkpoints_of(run_dir.slot(slot), attempt)
    claim = read_record(Claim, folder / "claim")
    ended = read_record(Exit, folder / "exit.json")
    speaker = claim.token if claim is not None else token
    return Evidence(
        claim=claim,
        exit=ended,
        progress=read_record(Progress, folder / "progress.json"),
        beat=heartbeat.beat if heartbeat else -1,
        start_step=parent.step if parent else 0,
        newest_checkpoint=checkpoints[0].step if checkpoints else None,
        duplicates=tuple(sorted(_duplicate_tokens(folder))),
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
    return max(attempt_numbers(run_dir.slot(slot)), default=-1)


def log_tail(run_dir: RunDir, token: str) -> str:
    """The last lines of a job's error output."""
    paths = sorted(run_dir.job(token).glob("job-*.err"))
    if not paths:
        return ""
    try:
        with open(paths[-1], "rb") as file:
            file.seek(max(0, paths[-1].stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def read_record(model: type[Any], path: Path) -> Any:
    """The record in `path`, None where it is absent, torn or of another shape."""
    value = read_json_or_none(path)
    try:
        return model.model_validate(value) if value is not None else None
    except ValueError:
        return None


def _duplicate_tokens(folder: Path) -> list[str]:
    records = (read_record(Duplicate, path) for path in folder.glob("duplicate-*.json"))
    return [record.token for record in records if record is not None]
