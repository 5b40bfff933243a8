"""The facts behind `orchestrator goodput`, from the event history and the files that the jobs left. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.job import DO_NOT_REQUEUE, HANDED_OVER, Stretch, attempt_numbers, checkpoints_of, lineage
from orchestrator.decisions.evidence import Claim, Exit, Lenient, Progress, saved_step
from orchestrator.decisions.models import Slot, SlotStatus
from orchestrator.decisions.sightings import HEARTBEAT_SILENT_S
from orchestrator.disk import read_json_or_none
from orchestrator.errors import RunFolderError
from orchestrator.run.evidence import changed_at, read_record
from orchestrator.run.history import read_events
from orchestrator.run.rundir import RunDir, load_run
from orchestrator.screens.goodput import JobFacts, RunGoodput, SlotFacts, account, total
from orchestrator.screens.status import picture

Event = Mapping[str, Any]
#: The exit codes of a program that ended because it wanted to.
_IN_ORDER = frozenset({0, HANDED_OVER, DO_NOT_REQUEUE})


class Sign(Lenient):
    """A heartbeat, or a record of an end: who lives at `at`, and the times of its job."""

    token: str | None = None
    at: float
    started_at: float | None = None
    asked_at: float | None = None
    first_progress_at: float | None = None


class Moments(NamedTuple):
    """Of a slot, unix seconds by the controllers' clocks: its first event; by token, a submission; by attempt, proof of
    its end, and of those without one the last change of the heartbeat that was seen.
    """

    begun_at: float | None
    submitted: Mapping[str, float]
    proven: Mapping[int, float]
    beats: Mapping[int, float]


def run_goodput(run_dir: RunDir, now: float) -> RunGoodput:
    """Where the run's time went until `now`. Errors: UnknownRun, RunFolderError."""
    run = load_run(run_dir)
    view, ledger = picture(run_dir, now)
    events: dict[int, list[Event]] = {}
    for event in read_events(run_dir):
        events.setdefault(event.get("slot", -1), []).append(event)
    slots = []
    for slot in ledger.slots if ledger else ():
        over = view.wish != "run" or slot.status is not SlotStatus.ACTIVE or slot.index >= run.config.slots
        slots.append(account(slot_facts(run_dir, slot, events.get(slot.index, []), now, over=over), now))
    times = total([slot.times for slot in slots])
    return RunGoodput(
        run_id=view.run_id,
        run_name=view.run_name,
        run_dir=view.run_dir,
        at=now,
        stale=view.stale,
        times=times,
        slots=tuple(slots),
    )


def slot_facts(run_dir: RunDir, slot: Slot, events: Iterable[Event], now: float, *, over: bool) -> SlotFacts:
    """The facts of one slot. `events`: its own, oldest first. Errors: RunFolderError where its history is damaged."""
    folder, told = run_dir.slot(slot.index), moments_of(slot, events)
    stretches = stretches_of(folder)
    attempts = [n for n in attempt_numbers(folder) if has_claim(run_dir, slot.index, n)]
    jobs = [
        job_facts(run_dir, slot.index, number, told, now, stretches.get(number), newest=attempts[-1])
        for number in attempts
    ]
    return facts_with(slot, jobs, told, over=over)


def moments_of(slot: Slot, events: Iterable[Event]) -> Moments:
    """Of one slot and its events, oldest first."""
    submitted: dict[str, float] = {}
    proven: dict[int, float] = {}
    begun_at = None
    for event in events:
        at = float(event["at"])
        begun_at = at if begun_at is None else begun_at
        if event["kind"] in {"submission", "adopted"}:
            submitted.setdefault(event["token"], at)
        if event["kind"] == "ended":
            # By attempt, the first: a controller that was killed behind the event tells an end again.
            proven.setdefault(event["attempt"], at)
    live = [attempt for attempt in slot.attempts if attempt.verdict is None and attempt.live]
    beats = {one.number: one.heartbeat_changed_at for one in live if one.heartbeat_changed_at is not None}
    return Moments(begun_at, submitted, proven, beats)


def stretches_of(folder: Path, oldest: int = 0) -> dict[int, Stretch]:
    """By attempt, from `oldest` on, its part in the history of the slot in `folder`. Errors: RunFolderError."""
    try:
        return {stretch.attempt: stretch for stretch in lineage(folder, oldest=oldest)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError("run.parent-unreadable", path=folder, why=error) from None


def has_claim(run_dir: RunDir, slot: int, attempt: int) -> bool:
    """Whether a job has had the attempt."""
    return run_dir.disk.exists(run_dir.attempt(slot, attempt) / "claim")


def facts_with(slot: Slot, jobs: Iterable[JobFacts | None], told: Moments, *, over: bool) -> SlotFacts:
    """The facts of a slot that has had these jobs."""
    live = [s for attempt in slot.attempts for s in attempt.live if attempt.claimed_by is None and not attempt.ahead]
    queued = [told.submitted.get(s.token, s.intent_at) for s in live]
    known = tuple(job for job in jobs if job is not None)
    return SlotFacts(
        slot=slot.index, jobs=known, begun_at=told.begun_at, queued_at=max(queued, default=None), over=over and not live
    )


def job_facts(
    run_dir: RunDir,
    slot: int,
    attempt: int,
    told: Moments,
    now: float,
    stretch: Stretch | None,
    *,
    newest: int,
) -> JobFacts | None:
    """The facts of one attempt; None where nobody claimed it. `stretch`: its part in the slot's history, if any."""
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
    beat_at = max(seen_at, told.beats.get(attempt, seen_at))
    alive = ended is None and attempt not in told.proven and attempt == newest and now - beat_at <= HEARTBEAT_SILENT_S
    start = _start_step(run_dir, folder)
    kept = 0
    if stretch is not None:
        kept = (_kept_until(run_dir, slot, attempt, ended, progress, stretch) or start) - start
    if ended is not None and ended.code == 0 and progress is None:
        kept = max(kept, 1)  # a program that reports nothing, and is done
    return JobFacts(
        attempt=attempt,
        submitted_at=told.submitted.get(claim.token or ""),
        started_at=min(claim.at, sign.started_at if sign.started_at is not None else claim.at),
        first_step_at=sign.first_progress_at,
        asked_at=sign.asked_at,
        answered_at=_answered_at(run_dir, slot, attempt, sign.asked_at, ended),
        ended_at=ended.at if ended is not None else None,
        seen_at=seen_at,
        proven_at=told.proven.get(attempt),
        done=max(0, progress.step - start) if progress is not None else None,
        kept=max(0, kept),
        open=alive,
    )


def _answered_at(run_dir: RunDir, slot: int, attempt: int, asked_at: float | None, ended: Exit | None) -> float | None:
    """When the program had done what it was asked to: its orderly end, else its last save after the request."""
    if asked_at is None:
        return None
    if ended is not None and ended.code in _IN_ORDER:
        return ended.at
    newest = [changed_at(ref.path) for ref in checkpoints_of(run_dir.slot(slot), attempt)[:1]]
    return next((at for at in newest if at >= asked_at), None)


def _start_step(run_dir: RunDir, folder: Path) -> int:
    value = read_json_or_none(run_dir.disk, folder / "parent.json")
    step = value.get("step") if isinstance(value, dict) else None
    return step if isinstance(step, int) else 0


def _kept_until(
    run_dir: RunDir, slot: int, attempt: int, ended: Exit | None, progress: Progress | None, stretch: Stretch
) -> int | None:
    """The step up to which the attempt's work counts: its successor's start, else its newest checkpoint."""
    if stretch.until is not None:
        return stretch.until
    on_disk = next((ref.step for ref in checkpoints_of(run_dir.slot(slot), attempt)), None)
    return saved_step(ended, progress, on_disk)


class NewestJobs:
    """Of each slot of a run `most` jobs. What has ended is read once, and of older jobs nothing at all."""

    def __init__(self, run_dir: RunDir, most: int) -> None:
        self._run_dir, self._most = run_dir, most
        self._ended: dict[int, dict[int, tuple[Stretch | None, JobFacts]]] = {}

    def look(self, slot: Slot, events: Iterable[Event], now: float, *, over: bool) -> tuple[SlotFacts, int]:
        """The facts of `slot` as if it had no older jobs, and how many it has. `events`: its own, oldest first.

        Errors: RunFolderError where its history is damaged.
        """
        folder, told = self._run_dir.slot(slot.index), moments_of(slot, events)
        numbers, known = attempt_numbers(folder), self._ended.get(slot.index, {})
        claimed = (n for n in reversed(numbers) if n in known or has_claim(self._run_dir, slot.index, n))
        newest = list(islice(claimed, self._most))[::-1]
        stretches = stretches_of(folder, newest[0]) if newest else {}
        jobs: list[JobFacts | None] = []
        ended: dict[int, tuple[Stretch | None, JobFacts]] = {}
        for number in newest:
            stretch, before = stretches.get(number), known.get(number)
            known_job = before[1] if before is not None and before[0] == stretch else None
            job = known_job or job_facts(self._run_dir, slot.index, number, told, now, stretch, newest=newest[-1])
            if job is not None and number != newest[-1] and _is_settled(job, stretch):
                ended[number] = stretch, job
            jobs.append(job)
        self._ended[slot.index] = ended
        older = max(0, slot.jobs - len(newest))
        if older:
            told = told._replace(begun_at=jobs[0].submitted_at if jobs[0] is not None else None)
        return facts_with(slot, jobs, told, over=over), older


def _is_settled(job: JobFacts, stretch: Stretch | None) -> bool:
    """Whether its facts stay as they are while its part in the history (`stretch`) does."""
    return job.proven_at is not None and (stretch is None or stretch.until is not None)
