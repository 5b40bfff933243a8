"""From a run's folder to its `RunView`. Read-only. No other screen reads the folder, except `logs` and `jobtimes`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from anchorleg.files import read_json_or_none
from orchestrator.decisions.ends import lead_warning
from orchestrator.decisions.escalation import raised_slurm, raised_words
from orchestrator.decisions.evidence import Claim, Exit, Progress
from orchestrator.decisions.models import Attempt, Ledger, Seen, Slot, SlotStatus
from orchestrator.disk import is_out_of_inodes, left_on_full_disk, read_record
from orchestrator.notation import format_duration
from orchestrator.run.evidence import changed_at
from orchestrator.run.lease import TICKS_MISSED, highest_epoch, living_owner, regular_ticks
from orchestrator.run.ledger import load_ledger, read_control, read_events
from orchestrator.run.rundir import Run, RunDir, load_run
from orchestrator.screens.forecast import forecast, queue_view, waits_between
from orchestrator.screens.jobtimes import slot_facts
from orchestrator.screens.runview import ExcludedNode, RunEvents, RunSource, RunView, SlotView, StaleLedger
from orchestrator.screens.situation import Around, live_submission, run_state, situation, successor_view
from orchestrator.screens.timeline import clock

#: A job that has just begun has no rate worth telling: its first steps fill buffers.
RATE_AFTER_S = 5.0
#: A controller looks at least once a minute (controller.BEAT_S); twice that is worth a word.
LATE_LOOK_S = 150.0
#: A poll comes a tenth late at most (controller.Controller spreads them).
LATEST_POLL = 1.1
#: On a full disk the first look that was due and is not written is enough. So long may writing take.
WRITING_S = 5.0
#: An attempt's own report is missing while it starts; those of so many before it stand in.
ATTEMPTS_BACK = 3
UNUSABLE = "its progress.json is ignored: it must contain three whole numbers, step, total and checkpoint_step"


class Keeper(NamedTuple):
    """The controller of a run. `every_s`: how often `orchestrator tick` comes; None: it is a process that stays."""

    words: str
    every_s: float | None = None


def run_view(run_dir: RunDir, now: float | None = None, *, events: bool = False, jobs: int | None = 0) -> RunView:
    """The run at `now` (unix seconds; default: this moment). `events`: with its history. `jobs`: with so many of each
    slot's newest jobs (None: all), and the history. Errors: UnknownRun, RunFolderError, OSError.
    """
    now = time.time() if now is None else now
    run = load_run(run_dir)
    ledger = load_ledger(run_dir, run.run_id)
    known = ledger.slots if ledger else ()
    by = keeper(run_dir, now)
    stale = _stale_ledger(run, run_dir, ledger, by, now) if ledger else None
    control = read_control(run_dir)
    around = Around(
        run_name=run.config.run_name,
        wish=control.wish,
        alive=by is not None,
        slots=run.config.slots,
        now=now,
        full=stale is not None and stale.free_bytes is not None,
        stale=stale is not None,
        look_s=LATEST_POLL * run.poll_s if by is None or by.every_s is None else by.every_s,
    )
    slots = tuple(_slot_view(slot, run, run_dir, around) for slot in known)
    live = any(attempt.live for slot in known for attempt in slot.attempts)
    state = run_state([slot.state for slot in slots[: run.config.slots]], around, live=live)
    source = RunSource(run, ledger, RunEvents(tuple(read_events(run_dir))) if events or jobs != 0 else RunEvents())
    if jobs != 0:
        facts = []
        for slot in known:
            over = control.wish != "run" or slot.status is not SlotStatus.ACTIVE or slot.index >= run.config.slots
            facts.append(slot_facts(run_dir, slot, source.events.of(slot.index), now, over=over, most=jobs))
        source = replace(source, jobs=tuple(facts))
    return RunView(
        run_id=run.run_id,
        run_name=run.config.run_name,
        run_dir=str(run_dir.path),
        executor=run.executor,
        state=state,
        controller=by.words if by is not None else None,
        controller_epoch=highest_epoch(run_dir),
        wish=control.wish,
        wished_by=control.by,
        until=control.until,
        written_at=ledger.written_at if ledger else None,
        stale=stale if state in {"running", "stopping", "no controller"} else None,
        blind_since=ledger.blind_since if ledger else None,
        blind_error=ledger.blind_error if ledger else "",
        failover_tick=run.executor == "slurm" and run.config.relay.failover_tick,
        excluded_nodes=tuple(
            ExcludedNode(node=bad.node, until=bad.excluded_until, deaths=len(bad.deaths))
            for bad in (ledger.nodes if ledger else ())
            if bad.excluded_until > now
        ),
        queue=queue_view(known, [slot.state for slot in slots], run.config),
        slots=slots,
        source=source,
    )


def _stale_ledger(run: Run, run_dir: RunDir, ledger: Ledger, by: Keeper | None, now: float) -> StaleLedger | None:
    """None where `ledger` is as new as it should be, or nobody is to write one."""
    left = left_on_full_disk(run_dir.path)
    if left is None and by is None:
        return None
    late_s = LATE_LOOK_S if left is None else LATEST_POLL * run.poll_s + WRITING_S
    if by is not None and by.every_s is not None:
        late_s = max(late_s, TICKS_MISSED * by.every_s)
    if now - ledger.written_at <= late_s:
        return None
    inodes = left is not None and is_out_of_inodes(run_dir.path)
    return StaleLedger(since=ledger.written_at, free_bytes=left, out_of_inodes=inodes)


def keeper(run_dir: RunDir, now: float) -> Keeper | None:
    """A living controller, or regular ticks of `orchestrator tick`. Errors: RunFolderError, OSError."""
    owner = living_owner(run_dir)
    if (owner is None or owner.passes) and (ticks := regular_ticks(run_dir, now)) is not None:
        minutes = max(1, round(ticks.every_s / 60))
        often = "once a minute" if minutes == 1 else f"every {minutes} minutes"
        return Keeper(f"`orchestrator tick` on {ticks.host}, {often}", ticks.every_s)
    return Keeper(f"{owner.process} (`{owner.command}`, since {clock(owner.since, now)})") if owner else None


def _slot_view(slot: Slot, run: Run, run_dir: RunDir, around: Around) -> SlotView:
    attempt = slot.current
    progress, unusable = _newest_progress(run_dir, slot.index, attempt)
    now_is = situation(slot, around)
    over = [a for a in slot.attempts if a.verdict is not None]
    shown = {"step", "total", "checkpoint_step", "at", "attempt"}
    view = SlotView(
        slot=slot.index,
        name=run.config.name_of(slot.index),
        **vars(now_is),
        attempt=attempt.number if attempt else None,
        retry_at=slot.not_before if slot.not_before > around.now and now_is.state == "waiting" else None,
        successor=successor_view(slot),
        step=progress.get("step", slot.step or None),
        total=progress.get("total", slot.total),
        checkpoint_step=_saved(slot, progress),
        progress={key: value for key, value in progress.items() if key not in shown},
        best=slot.best,
        jobs=slot.jobs,
        hand_overs=slot.hand_overs,
        failures=slot.failures,
        failure_budget=run.config.relay.failure_budget,
        last_verdict=over[-1].verdict if over else None,
        last_cause=over[-1].cause if over else "",
        raised=raised_words(run.config.slurm, slot.raised),
        warning=unusable or lead_warning(slot, run.config.lead_seconds, run.config.slurm.time_limit),
    )
    live = live_submission(attempt)
    if attempt is None or live is None:
        return view
    seen = live.sighting if isinstance(live.sighting, Seen) else None
    begins, ends = (seen.started_at, seen.ends_at) if seen else (None, None)
    is_pending, folder = now_is.state == "pending", run_dir.attempt(slot.index, attempt.number)
    claim: Claim | None = read_record(Claim, folder / "claim") if attempt.claimed_by == live.token else None
    view = view.model_copy(
        update={
            "job_id": live.job_id,
            "node": seen.node if seen else "",
            "gpus": claim.gpus if claim is not None else "",
            "started_at": attempt.started_at or (None if is_pending else begins),
            "ends_at": None if is_pending else ends,
            "expected_start_at": begins if is_pending and begins and begins > around.now else None,
            "start_step": attempt.start_step if attempt.started_at else None,
        }
    )
    ended: Exit | None = read_record(Exit, folder / "exit.json") if not around.alive or around.stale else None
    if ended is not None and ended.token == live.token:
        return view.model_copy(update={"why": "its job ended, and no controller has checked since", "ends_at": None})
    places = run.config.slurm.places
    asked_s = raised_slurm(places[live.place if live.place < len(places) else 0], slot.raised).time_limit
    is_whole = "." not in (live.job_id or "")  # of a job for several slots, a slot may begin late
    given_s = view.ends_at - begins if is_whole and begins and view.ends_at else asked_s
    if given_s <= asked_s - 60:  # Slurm counts walltimes in minutes
        words = f"Slurm gave this job {format_duration(given_s)} of {format_duration(asked_s)}"
        view = view.model_copy(update={"shortened": words})
    return _with_rate(view, slot, run, progress, around.now)


def _saved(slot: Slot, progress: Mapping[str, Any]) -> int | None:
    """The step of the newest save that is known: of a running job, of an ended one, or where a later one started."""
    over = {attempt.number for attempt in slot.attempts if attempt.verdict is not None}
    if progress and progress["attempt"] not in over:
        return int(progress["checkpoint_step"])
    for attempt in reversed(slot.attempts):
        if attempt.checkpoint_step is not None:
            return attempt.checkpoint_step
        if attempt.started_at and attempt.start_step:
            return attempt.start_step
    return None


def _with_rate(view: SlotView, slot: Slot, run: Run, progress: dict[str, Any], now: float) -> SlotView:
    """The rate that the program told, else its mean over this job; and what follows from it."""
    if view.state not in {"running", "handing over", "blind"} or progress.get("attempt") != view.attempt:
        return view
    at = float(progress.get("at", 0.0))
    rate = progress.get("steps_per_s")
    if not isinstance(rate, (int, float)) or not math.isfinite(rate):
        trained_s = at - (view.started_at or at)
        steps = (view.step or 0) - (view.start_step or 0)
        rate = steps / trained_s if trained_s > RATE_AFTER_S else None
    update: dict[str, Any] = {"rate": rate, "silent_s": slot.current.quiet_s if slot.current else None}
    if rate and view.step is not None and view.total is not None:
        longest = run.config.max_runtime_s(view.slot)  # as its shim counts
        ends = [view.ends_at - run.config.lead_seconds] if view.ends_at is not None else []
        ends += [view.started_at + longest] if view.started_at is not None and longest is not None else []
        left_s, job_s = min(ends) - now if ends else None, run.config.longest_job_s(slot.index)
        update["forecast"] = forecast(view.total - view.step, rate, left_s, job_s, waits_between(slot.attempts))
    return view.model_copy(update=update)


def _newest_progress(run_dir: RunDir, slot: int, attempt: Attempt | None) -> tuple[dict[str, Any], str]:
    """What a program last said of itself: the newest report of this attempt and the ones before, with its `attempt`;
    and `UNUSABLE` where this attempt has one that cannot be used.
    """
    first, warning = attempt.number if attempt is not None else -1, ""
    for number in range(first, max(-1, first - ATTEMPTS_BACK), -1):
        path = run_dir.attempt(slot, number) / "progress.json"
        checked = read_record(Progress, path)
        if checked is not None:
            more: dict[str, Any] = read_json_or_none(path) or {}
            at = checked.at or changed_at(path)  # a foreign program may not say when
            return {**more, **checked.model_dump(), "at": at, "attempt": number}, warning
        if number == first and path.exists():
            warning = UNUSABLE
    return {}, warning
