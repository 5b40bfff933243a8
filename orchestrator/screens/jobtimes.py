"""The times of a slot's jobs (`SlotFacts`), from the history and from what the jobs left. Read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from anchorleg.job import DO_NOT_REQUEUE, HANDED_OVER, Stretch, attempt_numbers, checkpoints_of, lineage
from orchestrator.decisions.evidence import Claim, Evidence, Exit, Lenient, Parent, Progress
from orchestrator.decisions.models import Slot
from orchestrator.decisions.sightings import HEARTBEAT_SILENT_S
from orchestrator.disk import read_record
from orchestrator.errors import RunFolderError
from orchestrator.run.evidence import changed_at
from orchestrator.run.rundir import RunDir
from orchestrator.screens.runview import JobFacts, SlotFacts
from orchestrator.screens.timeline import Event


class Sign(Lenient):
    """A heartbeat, or a record of an end: who lives at `at`, and the times of its job."""

    token: str | None = None
    at: float
    started_at: float | None = None
    asked_at: float | None = None
    first_progress_at: float | None = None


def slot_facts(
    run_dir: RunDir, slot: Slot, events: Sequence[Event], now: float, *, over: bool, most: int | None = None
) -> SlotFacts:
    """The facts of one slot. `events`: its own, oldest first. `over`: it wants no job now. `most`: of so many of its
    newest jobs (None: all). Errors: RunFolderError where its history is damaged.
    """
    folder = run_dir.slot(slot.index)
    has_claim = (n for n in reversed(attempt_numbers(folder)) if run_dir.disk.exists(folder / f"attempts/{n}/claim"))
    attempts = list(islice(has_claim, most))[::-1]
    try:
        parts = {part.attempt: part for part in lineage(folder, oldest=attempts[0])} if attempts else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError("run.parent-unreadable", path=folder, why=error) from None
    # Of each the first event: a controller that was killed behind it tells it again.
    submitted = {e.get("token", ""): float(e["at"]) for e in events[::-1] if e["kind"] in {"submission", "adopted"}}
    proven = {e.get("attempt", -1): float(e["at"]) for e in events[::-1] if e["kind"] == "ended"}
    beats = {one.number: one.heartbeat_changed_at for one in slot.attempts if one.verdict is None and one.live}
    found = [
        _job_facts(run_dir, slot.index, n, parts.get(n), submitted, proven.get(n), beats.get(n), now, n == attempts[-1])
        for n in attempts
    ]
    jobs = tuple(job for job in found if job is not None)
    begun_at = float(events[0]["at"]) if events else None
    if most is not None and jobs and slot.jobs > len(attempts):
        begun_at = jobs[0].submitted_at
    live = [s for attempt in slot.attempts for s in attempt.live if attempt.claimed_by is None and not attempt.ahead]
    queued = [submitted.get(s.token, s.intent_at) for s in live]
    return SlotFacts(slot.index, jobs, begun_at, max(queued, default=None), over and not live)


def _job_facts(
    run_dir: RunDir,
    slot: int,
    attempt: int,
    part: Stretch | None,
    submitted: Mapping[str, float],
    proven_at: float | None,
    watched_at: float | None,
    now: float,
    is_newest: bool,
) -> JobFacts | None:
    """The facts of one attempt; None where its claim cannot be read. `part`: its part in the slot's history, if any.
    `submitted`: by token. `watched_at`: when the controller last saw the heartbeat change.
    """
    folder = run_dir.attempt(slot, attempt)
    claim: Claim | None = read_record(Claim, folder / "claim", run_dir.disk)
    if claim is None:
        return None
    ended: Exit | None = read_record(Exit, folder / "exit.json", run_dir.disk)
    progress: Progress | None = read_record(Progress, folder / "progress.json", run_dir.disk)
    beat = read_record(Sign, folder / "heartbeat.json", run_dir.disk)
    sign = Sign(at=claim.at) if beat is None else beat
    if ended is not None:
        sign = Sign(**ended.model_dump(include=set(Sign.model_fields)))
    seen_at = max(claim.at, sign.at, progress.at if progress is not None else 0.0)
    # By the node's clock, which may be behind, only where no controller has watched its heart.
    beat_at = max(seen_at, watched_at or seen_at)
    parent: Parent | None = read_record(Parent, folder / "parent.json", run_dir.disk)
    start = parent.step if parent is not None else 0
    saves, kept = checkpoints_of(run_dir.slot(slot), attempt), 0
    if part is not None:
        newest = saves[0].step if saves else None
        saved = Evidence(exit=ended, progress=progress, newest_checkpoint=newest).saved_step
        until = part.until if part.until is not None else saved
        kept = max(0, (until or start) - start)
    if ended is not None and ended.code == 0 and progress is None:
        kept = max(kept, 1)  # a program that reports nothing, and is done
    answered_at = None  # its orderly end, else its last save after the request
    if sign.asked_at is not None:
        if ended is not None and ended.code in {0, HANDED_OVER, DO_NOT_REQUEUE}:
            answered_at = ended.at
        elif saves and (saved_at := changed_at(saves[0].path)) >= sign.asked_at:
            answered_at = saved_at
    return JobFacts(
        attempt=attempt,
        submitted_at=submitted.get(claim.token or ""),
        started_at=min(claim.at, sign.started_at if sign.started_at is not None else claim.at),
        first_step_at=sign.first_progress_at,
        asked_at=sign.asked_at,
        answered_at=answered_at,
        ended_at=ended.at if ended is not None else None,
        seen_at=seen_at,
        proven_at=proven_at,
        done=max(0, progress.step - start) if progress is not None else None,
        kept=kept,
        open=is_newest and ended is None and proven_at is None and now - beat_at <= HEARTBEAT_SILENT_S,
    )
