"""What `status` says: the newest ledger, the jobs' own progress files, and whether a controller lives. Read-only."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from orchestrator.evidence import Progress, read_record
from orchestrator.executors.base import Frozen, JobState
from orchestrator.files import read_json_or_none
from orchestrator.lease import highest_epoch, living_owner
from orchestrator.ledger import Control, load_ledger, read_control
from orchestrator.models import Attempt, Blind, Seen, Slot, SlotStatus, Submission, SubmissionState, Verdict
from orchestrator.rundir import Run, RunDir, load_run


class SlotView(Frozen):
    """One slot, ready to be shown. Times are unix seconds; None: not known (yet)."""

    slot: int
    state: str
    why: str = ""
    attempt: int | None = None
    job_id: str | None = None
    node: str = ""
    started_at: float | None = None
    ends_at: float | None = None
    start_step: int | None = None
    step: int | None = None
    total: int | None = None
    checkpoint_step: int | None = None
    progress: dict[str, Any] = Field(default_factory=dict)
    jobs: int = 0
    hand_overs: int = 0
    failures: int = 0
    last_verdict: Verdict | None = None
    last_cause: str = ""


class RunView(Frozen):
    """One run, ready to be shown."""

    run_id: str
    run_name: str
    run_dir: str
    executor: str
    state: Literal["running", "stopping", "stopped", "finished", "failed", "no controller"]
    controller: str | None
    controller_epoch: int
    wish: str
    written_at: float | None
    blind_since: float | None = None
    blind_error: str = ""
    slots: tuple[SlotView, ...] = ()


def run_view(run_dir: RunDir) -> RunView:
    """Errors: UnknownRun, RunFolderError."""
    run = load_run(run_dir)
    ledger = load_ledger(run_dir, run.run_id)
    control = read_control(run_dir)
    owner = living_owner(run_dir)
    epoch = highest_epoch(run_dir)
    slots = tuple(_slot_view(slot, run_dir, control) for slot in (ledger.slots if ledger else ()))
    live = any(attempt.live for slot in (ledger.slots if ledger else ()) for attempt in slot.attempts)
    return RunView(
        run_id=run.run_id,
        run_name=run.config.run_name,
        run_dir=str(run_dir.path),
        executor=run.executor,
        state=_state(run, control, slots, alive=owner is not None, live=live),
        controller=str(owner) if owner else None,
        controller_epoch=epoch,
        wish=control.wish,
        written_at=ledger.written_at if ledger else None,
        blind_since=ledger.blind_since if ledger else None,
        blind_error=ledger.blind_error if ledger else "",
        slots=slots,
    )


def _state(
    run: Run, control: Control, slots: tuple[SlotView, ...], *, alive: bool, live: bool
) -> Literal["running", "stopping", "stopped", "finished", "failed", "no controller"]:
    if control.wish != "run":
        return "stopping" if live else "stopped"
    wanted = slots[: run.config.slots]
    if wanted and all(slot.state == SlotStatus.FINISHED for slot in wanted):
        return "finished"
    if wanted and not live and all(slot.state in {SlotStatus.FINISHED, SlotStatus.FAILED} for slot in wanted):
        return "failed"
    return "running" if alive else "no controller"


def _slot_view(slot: Slot, run_dir: RunDir, control: Control) -> SlotView:
    attempt = slot.current
    progress = _progress(run_dir, slot, attempt)
    base: dict[str, Any] = {
        "slot": slot.index,
        "jobs": slot.jobs,
        "hand_overs": slot.hand_overs,
        "failures": slot.failures,
        "step": progress.get("step", slot.step or None),
        "total": progress.get("total", slot.total),
        "checkpoint_step": progress.get("checkpoint_step", attempt.checkpoint_step if attempt else None),
        "progress": {
            k: v for k, v in progress.items() if k not in {"step", "total", "checkpoint_step", "at", "attempt"}
        },
    }
    over = [a for a in slot.attempts if a.verdict is not None]
    if over:
        base |= {"last_verdict": over[-1].verdict, "last_cause": over[-1].cause}
    live = _live_submission(attempt)
    if attempt is None or live is None:
        waiting = "stopped" if control.wish != "run" else "waiting"
        state = slot.status if slot.status is not SlotStatus.ACTIVE else waiting
        return SlotView(**base, state=state, why=slot.why, attempt=attempt.number if attempt else None)
    state, why = _live_state(live, attempt)
    seen = live.sighting if isinstance(live.sighting, Seen) else None
    return SlotView(
        **base,
        state=state,
        why=why or slot.why,
        attempt=attempt.number,
        job_id=live.job_id,
        node=seen.node if seen else "",
        started_at=attempt.started_at or (seen.started_at if seen else None),
        ends_at=seen.ends_at if seen else None,
        start_step=attempt.start_step if attempt.started_at else None,
    )


def _live_submission(attempt: Attempt | None) -> Submission | None:
    if attempt is None or not attempt.live:
        return None
    claimant = [s for s in attempt.live if s.token == attempt.claimed_by]
    return (claimant or list(attempt.live))[-1]


def _live_state(live: Submission, attempt: Attempt) -> tuple[str, str]:
    if isinstance(live.sighting, Blind):
        return "blind", live.sighting.error
    if isinstance(live.sighting, Seen):
        state = live.sighting.state
        if attempt.asked_to_hand_over_at is not None and state is JobState.RUNNING:
            return "handing over", ""
        if state is JobState.RUNNING and attempt.claimed_by is None:
            return "starting", ""
        known = state if state is not JobState.UNKNOWN else live.sighting.raw_state.lower()
        return str(known), live.sighting.reason if state is not JobState.RUNNING else ""
    if attempt.claimed_by == live.token:
        return "running", ""
    return ("submitted" if live.state is SubmissionState.SUBMITTED else str(live.state)), live.note


def _progress(run_dir: RunDir, slot: Slot, attempt: Attempt | None) -> dict[str, Any]:
    """The newest progress file among this attempt and the one before: a job that starts has none yet."""
    for number in range(attempt.number, max(-1, attempt.number - 3), -1) if attempt is not None else ():
        path = run_dir.attempt(slot.index, number) / "progress.json"
        checked = read_record(Progress, path)
        if checked is not None:
            more: dict[str, Any] = read_json_or_none(path) or {}
            return {**more, **checked.model_dump(), "attempt": number}
    return {}
