"""`explain`: what a slot is doing and why, from the ledger and the event log. Pure."""

from __future__ import annotations

from typing import Any

from anchorleg.words import counted
from orchestrator.decisions.models import Attempt, Blind, Gone, Seen, Slot, SlotStatus, Submission
from orchestrator.decisions.turns import place_words
from orchestrator.errors import ConfigError
from orchestrator.executors.base import View
from orchestrator.notation import format_duration
from orchestrator.screens.cells import stale_words
from orchestrator.screens.runview import RunView, SlotView
from orchestrator.screens.status import notes
from orchestrator.screens.timeline import clock, sentence

_WISHES = {
    "run": "the run should continue",
    "stop": "the run should stop once its jobs have saved",
    "stop-now": "the run should stop at once",
}


class HistoryEvent(View):
    """One thing that happened. `at`: unix seconds by the controller's clock; `event`: the line of the log."""

    at: float
    words: str
    event: dict[str, Any]


class Explanation(View):
    """`now`: the situation. `withheld`: why no new job is submitted at this moment. `next`: what comes. `facts`: what
    this rests on. `history`: the newest moments, oldest first. `slot`: as `status --json` has it.
    """

    run_name: str
    now: str
    withheld: str
    next: str
    facts: tuple[str, ...]
    history: tuple[HistoryEvent, ...]
    slot: SlotView


def explain(view: RunView, index: int, now: float, *, last: int = 15) -> Explanation:
    """One slot of a run, which was read with its events. Errors: ConfigError where there is no such slot."""
    source = view.source
    if source is None or source.ledger is None or not view.slots:
        raise ConfigError("slot.none-yet", name=view.run_name)
    if index >= len(view.slots):
        if index < source.run.config.slots:
            raise ConfigError("slot.new", slot=index, name=view.run_name)
        raise ConfigError("slot.unknown", name=view.run_name, slot=index, last=len(view.slots) - 1)
    slot, shown = source.ledger.slots[index], view.slots[index]
    events = [event for event in source.events.all if event.get("slot", index) == index]
    newest = events[-last:] if last else []
    moments = [HistoryEvent(at=event.get("at", 0.0), words=sentence(event, now), event=event) for event in newest]
    rung = place_words(slot, source.ledger.slots, source.run.config.queue)
    return Explanation(
        run_name=view.run_name,
        now=_situation(shown, now),
        withheld=_withheld(slot, shown, view, now),
        next=shown.next,
        facts=(*_run_facts(view, now), *_slot_facts(slot, shown, now), *([rung] if rung else [])),
        history=tuple(moments),
        slot=shown,
    )


def _situation(slot: SlotView, now: float) -> str:
    why = "; ".join(notes(slot, now, with_next=False))
    reason = f" (Slurm's reason: {slot.reason})" if slot.reason else ""
    if slot.state == "pending":
        return f"slot {slot.slot} is pending: job {slot.job_id or '(new)'} {why}{reason}"
    where = (f" on {slot.node}" if slot.node else "") + (f" (GPU {slot.gpus})" if slot.gpus else "")
    job = f", job {slot.job_id}{where}" if slot.job_id else ""
    return f"slot {slot.slot} is {slot.state}{job}" + (f": {why}" if why else "") + reason


def _withheld(slot: Slot, shown: SlotView, view: RunView, now: float) -> str:
    """Why no new job is submitted for the slot at this moment; never empty."""
    if shown.state == "blind":
        return "an unseen job may be running, and a second one would repeat its work"
    if shown.state in {"uncertain", "queued", "submitted"}:
        return "a job may exist already, and the controller first looks for it"
    if shown.job_id is not None or any(attempt.live for attempt in slot.attempts):
        return "the slot has a job, and never runs two"
    if slot.status is not SlotStatus.ACTIVE:
        return f"the slot is {slot.status}"
    if shown.state == "stopped":
        return shown.why or "the run was stopped"
    if view.controller is None:
        return "the run has no controller"
    if view.stale is not None and view.stale.free_bytes is not None:
        return "the run folder's disk has no room, and what is submitted must be written down first"
    if view.blind_since is not None:
        return f"the queue has not answered since {clock(view.blind_since, now)}: {view.blind_error}"
    if slot.not_before > now:
        left = format_duration(slot.not_before - now)
        return f"{slot.why or 'it waits after a failure'}; until {clock(slot.not_before, now)} ({left} more)"
    return slot.why or "nothing prevents it: it is submitted at the next check"


def _run_facts(view: RunView, now: float) -> list[str]:
    looked = f"the controller last checked at {clock(view.written_at, now)}" if view.written_at else "never checked"
    until = f" until {clock(view.until, now)}" if view.until is not None else ""
    wish = f"{_WISHES.get(view.wish, view.wish)}{until} (last command: `{view.wished_by or 'start'}`)"
    facts = [f"{looked} ({view.controller or 'none now'})", wish]
    if view.stale is not None:
        facts.append(stale_words(view.stale, now, view.run_dir))
    if view.blind_since is not None:
        facts.append(f"the queue has not answered since {clock(view.blind_since, now)}: {view.blind_error}")
    return facts + [f"node {node.node} is avoided until {clock(node.until, now)}" for node in view.excluded_nodes]


def _slot_facts(slot: Slot, shown: SlotView, now: float) -> list[str]:
    jobs = f"{counted(slot.jobs, 'job')} so far, {slot.hand_overs} handed over"
    failures = f"{counted(slot.failures, 'failure')} in a row"
    facts = [f"{jobs}; {failures} ({shown.failure_budget} stop the slot)"]
    if shown.checkpoint_step is not None:
        facts.append(f"its newest checkpoint is from step {shown.checkpoint_step:,}")
    facts += [words for words in (shown.raised, shown.shortened) if words]
    for attempt in slot.attempts:
        if attempt.verdict is None or attempt.live:
            facts += [_submission_fact(attempt, submission, now) for submission in attempt.submissions]
    return facts


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
            return f"{name} is {submission.state.shown}, begun {clock(submission.intent_at, now)}, not seen yet{note}"


def explanation_lines(found: Explanation, now: float) -> list[str]:
    """For a pipe and for a terminal alike."""
    lines = [f"{found.run_name}: {found.now}", f"  next: {found.next}", f"  no new job now: {found.withheld}", "facts:"]
    lines += [f"  {fact}" for fact in found.facts]
    lines += ["what happened, newest last:"] if found.history else []
    return lines + [f"  {clock(moment.at, now)}  {moment.words}" for moment in found.history]
