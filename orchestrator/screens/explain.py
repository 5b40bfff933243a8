"""`explain`: what a slot is doing and why, from the facts that the controller has: the ledger and the event log."""

from __future__ import annotations

import time
from typing import Any

from anchorleg.words import counted
from orchestrator.decisions.halving import place_words
from orchestrator.decisions.models import Attempt, Blind, Gone, Ledger, Seen, Slot, SlotStatus, Submission
from orchestrator.errors import ConfigError
from orchestrator.executors.base import View
from orchestrator.run.history import read_events
from orchestrator.run.rundir import Run, RunDir, load_run
from orchestrator.screens.cells import ago
from orchestrator.screens.status import RunView, SlotView, picture
from orchestrator.screens.timeline import clock, sentence
from orchestrator.screens.views import notes, stale_words
from orchestrator.walltime import format_duration

#: What fits a screen under the facts.
EVENTS_SHOWN = 15
_WISHES = {
    "run": "the run is to go on",
    "stop": "the run is to stop once its jobs have saved",
    "stop-now": "the run is to stop at once",
}


class HistoryEvent(View):
    """One thing that happened. `at`: unix seconds by the controller's clock; `event`: the line of the log."""

    at: float
    words: str
    event: dict[str, Any]


class Explanation(View):
    """`now`: the situation in one sentence. `withheld`: why no new job is submitted at this moment. `next`: what comes.
    `facts`: what this rests on. `history`: the newest moments, oldest first. `slot`: as `status --json` has it.
    """

    run_name: str
    now: str
    withheld: str
    next: str
    facts: tuple[str, ...]
    history: tuple[HistoryEvent, ...]
    slot: SlotView


def explain(run_dir: RunDir, index: int, *, last: int = EVENTS_SHOWN, now: float | None = None) -> Explanation:
    """Errors: ConfigError where there is no such slot; UnknownRun, RunFolderError."""
    now = time.time() if now is None else now
    run = load_run(run_dir)
    view, ledger = picture(run_dir, now)
    if ledger is None or index >= len(view.slots):
        if view.slots and index < run.config.slots:
            raise ConfigError("slot.new", slot=index, name=view.run_name)
        if not view.slots:
            raise ConfigError("slot.none-yet", name=view.run_name)
        raise ConfigError("slot.unknown", name=view.run_name, slot=index, last=len(view.slots) - 1)
    slot, shown = ledger.slots[index], view.slots[index]
    written = [event for event in read_events(run_dir) if event.get("slot", index) == index]
    moments = [HistoryEvent(at=event.get("at", 0.0), words=sentence(event, now), event=event) for event in written]
    return Explanation(
        run_name=view.run_name,
        now=now_sentence(shown, now),
        withheld=withheld(slot, shown, view, now),
        next=shown.next,
        facts=(*run_facts(ledger, view, now), *slot_facts(slot, shown, now), *rung_facts(ledger, slot, run)),
        history=tuple(moments[-last:] if last else ()),
        slot=shown,
    )


def now_sentence(slot: SlotView, now: float) -> str:
    """The situation: state, job, and why."""
    why = "; ".join(notes(slot, now, with_next=False))
    if slot.state == "pending":
        return f"slot {slot.slot} is pending: job {slot.job_id or '(new)'} {why}" + _reason(slot)
    where = (f" on {slot.node}" if slot.node else "") + (f" (GPU {slot.gpus})" if slot.gpus else "")
    job = f", job {slot.job_id}{where}" if slot.job_id else ""
    return f"slot {slot.slot} is {slot.state}{job}" + (f": {why}" if why else "") + _reason(slot)


def _reason(slot: SlotView) -> str:
    return f" (Slurm's reason: {slot.reason})" if slot.reason else ""


def withheld(slot: Slot, shown: SlotView, view: RunView, now: float) -> str:
    """Why no new job is submitted for the slot at this moment; never empty."""
    if shown.state == "blind":
        return "a job that is not seen may run: a second one would do its work twice"
    if shown.state in {"uncertain", "intent", "submitted"}:
        return "a job may be there already, and is looked for first"
    if shown.job_id is not None or any(attempt.live for attempt in slot.attempts):
        return "the slot has its job, and a slot never has two at work"
    if slot.status is SlotStatus.FINISHED:
        return "its training is done"
    if slot.status is not SlotStatus.ACTIVE:
        return f"the slot is {slot.status}; a person has to act first"
    if shown.state == "stopped":
        return shown.why or "the run was stopped"
    if view.controller is None:
        return "no controller looks after the run"
    if view.stale is not None and view.stale.free_bytes is not None:
        return "the disk is full, and what is submitted must be written down first"
    if view.blind_since is not None:
        return f"the queue has not been seen since {clock(view.blind_since, now)}: {view.blind_error}"
    if slot.not_before > now:
        left = format_duration(slot.not_before - now)
        return f"{slot.why or 'after a failure there is a pause'}; until {clock(slot.not_before, now)} ({left} more)"
    return slot.why or "nothing is in its way: it is submitted at the next look"


def run_facts(ledger: Ledger, view: RunView, now: float) -> list[str]:
    """Of the whole run."""
    looked = (
        f"the controller last looked at {clock(ledger.written_at, now)}" if ledger.written_at else "never looked at"
    )
    facts = [f"{looked} ({view.controller or 'nobody looks now'})", _wish(view, now)]
    if view.stale is not None:
        facts.append(stale_words(view.stale, now, view.run_dir))
    if view.blind_since is not None:
        facts.append(f"the queue has not been seen since {clock(view.blind_since, now)}: {view.blind_error}")
    return facts + [f"node {node.node} is avoided until {clock(node.until, now)}" for node in view.excluded_nodes]


def _wish(view: RunView, now: float) -> str:
    until = f" until {clock(view.until, now)}" if view.until is not None else ""
    return f"{_WISHES.get(view.wish, view.wish)}{until} (`{view.wished_by or 'start'}` was the last word)"


def slot_facts(slot: Slot, shown: SlotView, now: float) -> list[str]:
    """Of the slot and of its newest attempts."""
    jobs = f"{counted(slot.jobs, 'job')} so far, {slot.hand_overs} handed over"
    failures = f"{counted(slot.failures, 'failure')} in a row"
    facts = [f"{jobs}; {failures} ({shown.failure_budget} stop the slot)"]
    if shown.checkpoint_step is not None:
        facts.append(f"its newest checkpoint is of step {shown.checkpoint_step:,}")
    for attempt in slot.attempts:
        if attempt.verdict is None or attempt.live:
            facts += attempt_facts(attempt, now)
    return facts


def rung_facts(ledger: Ledger, slot: Slot, run: Run) -> list[str]:
    """Its place among the experiments, where there is successive halving."""
    words = place_words(slot, ledger.slots, run.config.queue)
    return [words] if words else []


def attempt_facts(attempt: Attempt, now: float) -> list[str]:
    """Of one attempt that is not over: who has it, and what was seen of each of its submissions."""
    facts = []
    if attempt.claimed_by is not None and attempt.started_at is not None:
        facts.append(f"attempt {attempt.number} has been at work since {clock(attempt.started_at, now)}")
    if attempt.heartbeat_changed_at is not None and attempt.heartbeat >= 0:
        changed = ago(now - attempt.heartbeat_changed_at)
        facts.append(
            f"attempt {attempt.number}: its heartbeat was last seen to change {changed} (number {attempt.heartbeat})"
        )
    if attempt.asked_to_hand_over_at is not None:
        facts.append(f"attempt {attempt.number} was asked to hand over at {clock(attempt.asked_to_hand_over_at, now)}")
    if attempt.aborted_at is not None:
        facts.append(f"attempt {attempt.number} was told to print its stacks at {clock(attempt.aborted_at, now)}")
    return facts + [_submission_fact(attempt, submission, now) for submission in attempt.submissions]


def _submission_fact(attempt: Attempt, submission: Submission, now: float) -> str:
    name = f"attempt {attempt.number}: " + (f"job {submission.job_id}" if submission.job_id else "a submission")
    name += f" (queued behind job {submission.after})" if submission.after else ""
    match submission.sighting:
        case Seen() as seen:
            reason = f", reason {seen.reason}" if seen.reason else ""
            return f"{name} was {seen.raw_state}{reason} in the queue at {clock(seen.at, now)}"
        case Blind() as blind:
            return f"{name} has not been seen since {clock(blind.since, now)}: {blind.error}"
        case Gone() as gone:
            return f"{name} is over: {gone.proof} ({clock(gone.at, now)})"
        case _:
            note = f": {submission.note}" if submission.note else ""
            return f"{name} is {submission.state}, begun {clock(submission.intent_at, now)}, not seen yet{note}"


def explanation_lines(found: Explanation, now: float) -> list[str]:
    """For a pipe and for a terminal alike."""
    lines = [f"{found.run_name}: {found.now}", f"  next: {found.next}", f"  no new job now: {found.withheld}", "facts:"]
    lines += [f"  {fact}" for fact in found.facts]
    lines += ["what happened, newest last:"] if found.history else []
    return lines + [f"  {clock(moment.at, now)}  {moment.words}" for moment in found.history]
