"""Reading what the jobs themselves wrote: the first and cheapest source (`orchestrator.decisions.evidence`)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from anchorleg.job import HANDED_OVER
from orchestrator.decisions.evidence import Beat, Claim, Duplicate, Evidence, Exit, Parent, Progress
from orchestrator.decisions.models import Ledger, Slot
from orchestrator.disk import RECORDS_KEPT, Disk, read_record
from orchestrator.executors.base import Frozen, JobState, Poll
from orchestrator.run.rundir import RunDir

#: What holds a whole traceback, also of a pool's worker.
LOG_TAIL_BYTES = 16 << 10


class _Files:
    """Paths in an attempt's folder, and its files that are written once: to make them anew is half of a look's cost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: dict[str, Path] = {}
        self._records: dict[str, tuple[object, Any]] = {}

    def of(self, name: str) -> Path:
        path = self._paths.get(name)
        if path is None:
            path = self._paths[name] = self.folder / name
        return path

    def record(self, model: type[Frozen], name: str, disk: Disk) -> Any:
        """As `read_record`, of a file that seldom changes."""
        path = self.of(name)
        try:
            version = disk.version(path)
        except OSError:
            return None
        known = self._records.get(name)
        if known is None or known[0] != version:
            known = self._records[name] = version, read_record(model, path, disk)
        return known[1]


@lru_cache(maxsize=RECORDS_KEPT)
def _files(run_path: Path, slot: int, attempt: int) -> _Files:
    return _Files(RunDir(run_path).attempt(slot, attempt))


def read_evidence(
    run_dir: RunDir, slot: int, attempt: int, token: str | None = None, *, with_log: bool = True
) -> Evidence:
    """Read one attempt's folder. Absent and torn files prove nothing. `token`: whose log to read while nobody has
    claimed the attempt. `with_log`: read it even without a bad end.
    """
    disk, files = run_dir.disk, _files(run_dir.path, slot, attempt)
    if not (names := disk.names(files.folder)):
        if not with_log or not token:
            return Evidence()
        return Evidence(log_tail=log_tail(run_dir, token), has_output=bool(output_files(run_dir, token)))

    def record(model: type[Frozen], name: str) -> Any:
        return read_record(model, files.of(name), disk) if name in names else None

    heartbeat, ended = record(Beat, "heartbeat.json"), record(Exit, "exit.json")
    claim = files.record(Claim, "claim", disk) if "claim" in names else None
    parent = files.record(Parent, "parent.json", disk) if "parent.json" in names else None
    found = [record(Duplicate, name) for name in names if name.startswith("duplicate-") and name.endswith(".json")]
    duplicates = [one for one in found if one is not None]
    published = disk.names(files.of("checkpoints")) if "checkpoints" in names else ()
    steps = [int(name) for name in published if name.isdigit()]
    speaker = claim.token if claim is not None else token
    bad_end = ended is not None and ended.code not in {0, HANDED_OVER}
    return Evidence(
        claim=claim,
        exit=ended,
        progress=record(Progress, "progress.json"),
        beat=heartbeat.beat if heartbeat else -1,
        start_step=parent.step if parent else 0,
        newest_checkpoint=max(steps, default=None),
        duplicates=tuple(sorted(one.token for one in duplicates)),
        declined=tuple(sorted(one.token for one in duplicates if one.unneeded is not None)),
        log_tail=log_tail(run_dir, speaker) if speaker and (with_log or bad_end) else "",
        has_output=claim is not None or not with_log or token is None or bool(output_files(run_dir, token)),
    )


def read_all(run_dir: RunDir, ledger: Ledger, poll: Poll | None = None) -> dict[tuple[int, int], Evidence]:
    """Evidence of every open attempt, by (slot, attempt); of logs, after a bad end or where `poll` lacks the job."""
    found = {}
    jobs = str(run_dir.jobs)
    for slot in ledger.slots:
        for attempt in slot.attempts:
            if attempt.verdict is not None and not attempt.live:
                continue
            rows = [poll.of(f"{jobs}/{s.token}") if poll is not None else None for s in attempt.live]
            gone = attempt.verdict is None and any(row is None or row.state is JobState.ENDED for row in rows)
            token = attempt.submissions[-1].token if attempt.submissions else None
            found[slot.index, attempt.number] = read_evidence(
                run_dir, slot.index, attempt.number, token, with_log=gone and (poll is None or poll.error is None)
            )
    return found


def newer_attempts(run_dir: RunDir, slot: Slot) -> list[int]:
    """The attempts above all that the ledger knows that left a folder, highest first: it is behind the truth there. A
    slot that has a job gets none, so only the next number is looked for: the list of them all grows for ever.
    """
    known = slot.attempts[-1].number if slot.attempts else -1
    if slot.occupied and not run_dir.disk.exists(_files(run_dir.path, slot.index, known + 1).folder):
        return []
    names = run_dir.disk.names(run_dir.slot(slot.index) / "attempts")
    numbers = [int(name) for name in names if name.isdigit()]
    return sorted((number for number in numbers if number > known), reverse=True)


def output_files(run_dir: RunDir, token: str) -> list[str]:
    """The names of a job's output files in its folder."""
    return sorted(name for name in run_dir.disk.names(run_dir.job(token)) if name.startswith("job-"))


def log_tail(run_dir: RunDir, token: str) -> str:
    """The last lines of a job's error output."""
    names = [name for name in output_files(run_dir, token) if name.endswith(".err")]
    if not names:
        return ""
    try:
        return run_dir.disk.tail(run_dir.job(token) / names[-1], LOG_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def changed_at(path: Path) -> float:
    """When a file or folder was last changed, by the clock of its server (unix seconds); 0 where it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
