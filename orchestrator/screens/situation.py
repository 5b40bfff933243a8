"""What a run is doing, in a word; and a slot: why it does not do more, and what happens next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.decisions.edits import TRIED_AGAIN
from orchestrator.decisions.models import Attempt, Blind, Seen, Slot, SlotStatus, Submission, SubmissionState, Verdict
from orchestrator.decisions.reasons import BOOTING, Kind, PendingReason, reason_of
from orchestrator.decisions.requests import is_put_off
from orchestrator.executors.base import JobState
from orchestrator.screens.runview import OVER, RunState, SuccessorView
from orchestrator.screens.timeline import at_and_in, clock


@dataclass(frozen=True)
class Situation:
    """Fields of a `SlotView`. `why`: what it waits for or ended of. `next`: what comes."""

    state: str
    why: str = ""
    next: str = ""
    reason: str = ""
    kind: Kind | None = None


@dataclass(frozen=True)
class Around:
    """What a slot's situation depends on besides the slot. `alive`: a controller looks after the run, every `look_s`
    seconds, and keeps its first `slots` slots going. `stale`: nobody has written what happened for too long; `full`:
    because the disk of the run's folder has no room.
    """

    run_name: str
    wish: str
    alive: bool
    slots: int
    now: float
    look_s: float = 60.0
    stale: bool = False
    full: bool = False


def run_state(states: Sequence[str], around: Around, *, live: bool) -> RunState:
    """`states`: of the slots that are wanted. `live`: whether any slot may have a job."""
    over = {"finished", "dropped", "behind"}
    if states and over.issuperset(states) and not (live and around.wish != "run"):
        return "finished"
    if around.wish != "run":
        return "stopping" if live else "stopped"
    if states and not live and (over | {"failed", "paused"}).issuperset(states):
        return "paused" if "paused" in states else "failed"
    return "running" if around.alive else "no controller"


def situation(slot: Slot, around: Around) -> Situation:
    """By the slot's newest attempt that is not queued behind another."""
    attempt = slot.current
    live = live_submission(attempt)
    found = _with_job(slot, attempt, live, around) if attempt and live else _without_job(slot, around)
    if not around.alive and found.state not in OVER:
        return replace(found, next=f"this run has no controller now: `orchestrator start {around.run_name}`")
    if around.full and found.state == "waiting":
        return Situation(found.state, found.why, "a job is submitted once the disk has room")
    return found


def live_submission(attempt: Attempt | None) -> Submission | None:
    """The one that counts: the claimant, else the newest that may hold a job."""
    if attempt is None or not attempt.live:
        return None
    claimant = [s for s in attempt.live if s.token == attempt.claimed_by]
    return (claimant or attempt.live)[-1]


def successor_view(slot: Slot) -> SuccessorView | None:
    """The job that is queued behind the slot's running one, if any."""
    attempt = slot.successor
    live = live_submission(attempt)
    if attempt is None or live is None:
        return None
    seen = live.sighting if isinstance(live.sighting, Seen) else None
    return SuccessorView(
        attempt=attempt.number,
        job_id=live.job_id,
        state=str(seen.state) if seen else live.state.shown,
        why=reason_of(seen.reason, seen.partition).words if seen and seen.reason not in {"", "Dependency"} else "",
        reason=seen.reason if seen else "",
    )


def _without_job(slot: Slot, around: Around) -> Situation:
    go_on, resume = (f"`orchestrator {verb} {around.run_name}`" for verb in ("start", "resume SLOT --run"))
    match slot.status:
        case SlotStatus.FINISHED:
            return Situation("finished", slot.why, "its training is done")
        case SlotStatus.FAILED:
            last, back = slot.current, ""
            if last is not None and last.verdict is Verdict.CRASHED and last.start_step and not last.progress_mark:
                command = f"`orchestrator rollback {slot.index} --to {last.start_step - 1} --run {around.run_name}`"
                back = f"; if the checkpoint of step {last.start_step:,} is damaged, {command} first"
            return Situation("failed", slot.why or "it was given up", f"fix it, then {go_on}{back}")
        case SlotStatus.PAUSED:
            why = slot.why or "its job was cancelled"
            return Situation("paused", why, f"continue it with {resume if slot.on_request else go_on}")
        case SlotStatus.DROPPED:
            return Situation("dropped", slot.why, f"its files stay; continue it with {resume}")
        case SlotStatus.BEHIND:
            return Situation("behind", slot.why, "others were better" if slot.rungs else "it reported no metric")
    waits = slot.why.startswith("waits ")
    if around.wish != "run":
        return Situation("stopped", "" if waits else slot.why, f"{go_on} continues it")
    if slot.index >= around.slots:
        return Situation("stopped", "the run has fewer slots now", "its files stay where they are")
    if slot.not_before > around.now:
        again = f"tries again {at_and_in(slot.not_before, around.now)}"
        is_refused = is_put_off(slot) and slot.why.endswith(TRIED_AGAIN)  # and no other answer came since
        return Situation("waiting", slot.why, again, kind="for ever" if is_refused else None)
    current = slot.current
    if current is not None and current.verdict is None and current.claimed_by is not None:
        return Situation("waiting", slot.why or "the end of its last job is not clear yet", "the next checks decide")
    return Situation("waiting", slot.why, f"a job is submitted {'when that is over' if waits else 'at the next check'}")


def _with_job(slot: Slot, attempt: Attempt, live: Submission, around: Around) -> Situation:
    after = _after(slot, around)
    if isinstance(live.sighting, Blind):
        then = "nothing is submitted until it is seen again or its end is proven"
        if live.sighting.proven_at is not None:
            by = clock(max(live.sighting.proven_at, around.now) + around.look_s, around.now)
            then = f"decided by {by} at the latest, unless the job shows a sign of life; nothing is submitted before"
        return Situation("blind", live.sighting.error, then)
    if isinstance(live.sighting, Seen):
        return _seen(slot, attempt, live.sighting, after)
    if attempt.claimed_by == live.token:
        return Situation("running", slot.why, after)
    match live.state:
        case SubmissionState.SUBMITTED:
            then = "it is accepted; the next check of the queue shows more"
            return Situation("submitted", slot.why or live.note, then)
        case SubmissionState.UNCERTAIN:
            why = slot.why or live.note or "the last submission got no clear answer"
            return Situation("uncertain", why, "the controller first looks for it in the queue")
        case _:
            return Situation(live.state.shown, slot.why, "it is handed to the scheduler now")


def _seen(slot: Slot, attempt: Attempt, seen: Seen, after: str) -> Situation:
    match seen.state:
        case JobState.RUNNING if seen.raw_state in {"SUSPENDED", "STOPPED"}:
            return Situation("suspended", "Slurm has suspended it: its program pauses until it is resumed", after)
        case JobState.RUNNING if attempt.asked_to_hand_over_at is not None:
            return Situation("handing over", slot.why, f"it saves and ends; {after}")
        case JobState.RUNNING if attempt.aborted_at is not None:
            why = "its program has been silent for too long and is ended; its stacks go to the job's .err"
            return Situation("stalled", why, after)
        case JobState.RUNNING if attempt.claimed_by is None:
            return Situation("starting", slot.why, "its program starts")
        case JobState.RUNNING:
            return Situation("running", slot.why, after)
        case JobState.PENDING:
            boots = PendingReason("waits", f"waits: its node {seen.node} is being started")
            reason = boots if seen.raw_state == BOOTING else reason_of(seen.reason, seen.partition)
            then = {
                "waits": "it starts as soon as Slurm allows",
                "person": "it stays as it is until you act",
                "for ever": "it is cancelled",
            }[reason.kind]
            return Situation("pending", reason.words, then, seen.reason, reason.kind)
        case JobState.ENDING | JobState.ENDED:
            return Situation(str(seen.state), slot.why, f"Slurm cleans up after it; {after}")
        case _:
            return Situation(seen.raw_state.lower(), f"an unknown state: {seen.raw_state}", "nothing is changed")


def _after(slot: Slot, around: Around) -> str:
    if slot.status is not SlotStatus.ACTIVE:
        return f"no other job follows: {slot.why or slot.status}"
    if around.wish != "run" or slot.index >= around.slots:
        return "no job follows, because the run is being stopped"
    if (successor := live_submission(slot.successor)) is not None:
        return f"job {successor.job_id or '(being submitted)'}, queued behind it, takes over"
    return "the next job is submitted when it ends"
