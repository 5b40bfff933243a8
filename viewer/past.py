"""A run as it was at an earlier moment: what is known now, without what came later. Pure.

It is made here and not on the page: a run of weeks has some ten thousand events and rows of megabytes, of which a
picture of one moment is some tens of kB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.screens.goodput import end_of
from orchestrator.screens.runview import JobFacts, SlotFacts
from orchestrator.screens.summary import steps_lost
from orchestrator.screens.timeline import end_words
from viewer.curves import curves_until
from viewer.learning import Learned
from viewer.model import SlotCard

Event = Mapping[str, Any]

#: What no history is kept of.
LACKS = "This is an earlier moment: policies, contributors, experiments, troubles and goodput are shown as of now only."
_HANDED_OVER = "handed over"


def events_until(events: Sequence[Event], at: float) -> list[Event]:
    """Those that had happened."""
    return [event for event in events if float(event["at"]) <= at]


def facts_at(facts: SlotFacts, events: Sequence[Event], at: float) -> SlotFacts:
    """The jobs that had begun at `at`; what had not ended ran. `events`: of the slot, until `at`."""
    jobs = tuple(_job_at(job, at) for job in facts.jobs if job.started_at <= at)
    begun = {job.attempt for job in jobs}
    ended = {event.get("attempt") for event in events if event["kind"] == "ended"}
    queued = [
        float(event["at"])
        for event in events
        if event["kind"] == "submission" and event.get("job_id") and event.get("attempt") not in begun | ended
    ]
    last = max((job.started_at if job.open else end_of(job, at) for job in facts.jobs), default=at)
    over = facts.over and at >= last
    begun_at = facts.begun_at if facts.begun_at is not None and facts.begun_at <= at else None
    return SlotFacts(slot=facts.slot, jobs=jobs, begun_at=begun_at, queued_at=max(queued, default=None), over=over)


def _job_at(job: JobFacts, at: float) -> JobFacts:
    if not job.open and end_of(job, at) <= at and (job.ended_at is None or job.ended_at <= at):
        return job
    first = job.first_step_at if job.first_step_at is not None and job.first_step_at <= at else None
    return replace(
        job,
        open=True,
        first_step_at=first,
        asked_at=job.asked_at if job.asked_at is not None and job.asked_at <= at else None,
        answered_at=None,
        ended_at=None,
        proven_at=None,
        done=0 if first is None and job.first_step_at is not None else job.done,
    )


def learned_until(learned: Learned, at: float) -> Learned:
    """The rows and evaluations that were there. Where evaluations were thinned, their number is an estimate, and the
    best is that of those kept.
    """
    evaluations = [row for row in learned.evaluations if row["at"] is None or row["at"] <= at]
    evaluated = round(learned.evaluated * len(evaluations) / max(1, len(learned.evaluations)))
    return replace(learned, curves=curves_until(learned.curves, at), evaluations=evaluations, evaluated=evaluated)


def card_at(card: SlotCard, facts: SlotFacts, events: Sequence[Event], learned: Learned | None) -> SlotCard:
    """The slot of `card` (as it is now) by what was known then: `facts_at`, `events_until`, `learned_until`."""
    job = facts.jobs[-1] if facts.jobs else None
    told = {event.get("attempt"): event for event in events if event["kind"] == "started"}
    ends = {int(event.get("attempt") or 0): event for event in events if event["kind"] == "ended"}
    last = ends[max(ends)] if ends else None
    own = told.get(job.attempt, {}) if job is not None and job.open else {}
    steps = learned.curves.steps if learned is not None else ()
    return SlotCard(
        slot=card.slot,
        name=card.name,
        state=_state(facts, last),
        job=str(own.get("job_id") or ""),
        attempt=job.attempt if job is not None else None,
        node=str(own.get("node") or ""),
        started_at=job.started_at if job is not None and job.open else None,
        step=steps[-1] if steps else None,
        total=card.total,
        jobs=len(facts.jobs),
        hand_overs=sum(event.get("verdict") == _HANDED_OVER for event in ends.values()),
        steps_lost=steps_lost(events),
        last_end=end_words(str(last.get("verdict")), str(last.get("cause") or "")) if last is not None else "",
    )


def _state(facts: SlotFacts, last: Event | None) -> str:
    if any(job.open for job in facts.jobs):
        return "handing over" if facts.jobs[-1].asked_at is not None else "running"
    if facts.queued_at is not None:
        return "pending"
    if last is not None and last.get("verdict") == "finished":
        return "finished"
    return "waiting" if facts.begun_at is not None else "not begun"
