"""From the facts of a slot's jobs (`orchestrator.screens.runview`) to its row of the time line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.screens.goodput import end_of, phases_between, phases_of
from orchestrator.screens.runview import JobFacts, SlotFacts
from orchestrator.screens.timeline import end_words
from viewer.model import JOBS_A_PAGE, JobBar, Part, SlotTimes, Span

Event = Mapping[str, Any]


def row_of(
    facts: SlotFacts, events: Sequence[Event], now: float, goodput: float | None, page: int = 0, at: float | None = None
) -> SlotTimes:
    """The jobs of one `page` (0: the newest), oldest first, each with what came before it. `events`: of this slot.
    `at`: an earlier moment.
    """
    bars = bars_of(facts, events, now) if at is None else bars_at(bars_of(facts, events, now), at)
    until = max(0, len(bars) - page * JOBS_A_PAGE)
    first = max(0, until - JOBS_A_PAGE)
    ends = _told(events)[1]
    last = ends[max(ends)] if ends else None
    return SlotTimes(
        jobs=tuple(bars[first:until]),
        older=first,
        goodput=goodput,
        lost=sum(_lost_in(event) or 0 for event in ends.values()),
        last_end=_words(last) if last is not None else "",
    )


def bars_at(bars: Sequence[JobBar], at: float) -> list[JobBar]:
    """As they were then: what had begun, and went on where its end came later. Nobody knew yet how that would be."""
    found = []
    for bar in bars:
        begun = [part for part in bar.parts if part.start <= at]
        parts = [
            part if part.end is not None and part.end <= at else part.model_copy(update={"end": None}) for part in begun
        ]
        if parts and (len(parts) < len(bar.parts) or parts[-1].end is None):
            found.append(bar.model_copy(update={"parts": tuple(parts), "verdict": "", "words": "", "lost": None}))
        elif parts:
            found.append(bar)
    return found


def bars_of(facts: SlotFacts, events: Iterable[Event], now: float) -> list[JobBar]:
    """All jobs of a slot, and at the end what it waits for now."""
    ids, ends = _told(events)
    bars: list[JobBar] = []
    at, proven_at = facts.begun_at, facts.begun_at
    for job in sorted(facts.jobs, key=lambda one: one.started_at):
        gap = _gap(at, proven_at, job.submitted_at, job.started_at)
        ended = ends.get(job.attempt)
        bars.append(
            JobBar(
                attempt=job.attempt,
                job=ids.get(job.attempt, ""),
                parts=(*gap, *_own(job, now)),
                verdict=str(ended.get("verdict") or "") if ended else "",
                words=_words(ended) if ended else "",
                lost=_lost_in(ended) if ended else None,
            )
        )
        end = end_of(job, now)
        if at is None or end >= at:
            at = end
            proven_at = end if job.ended_at is not None or job.open else job.proven_at
    open_now = any(job.open for job in facts.jobs)
    if at is not None and not facts.over and not open_now:
        next_attempt = facts.jobs[-1].attempt + 1 if facts.jobs else 0
        bars.append(JobBar(attempt=next_attempt, parts=_gap(at, proven_at, facts.queued_at, None)))
    return bars


def _told(events: Iterable[Event]) -> tuple[dict[int, str], dict[int, Event]]:
    """By attempt: the job's id, and how it ended (the first telling: a controller that was killed tells it again)."""
    ids: dict[int, str] = {}
    ends: dict[int, Event] = {}
    for event in events:
        attempt = event.get("attempt")
        if not isinstance(attempt, int):
            continue
        if event.get("job_id"):
            ids[attempt] = str(event["job_id"])
        if event.get("kind") == "ended":
            ends.setdefault(attempt, event)
    return ids, ends


def _words(ended: Event) -> str:
    return end_words(str(ended.get("verdict")), str(ended.get("cause") or ""))


def _lost_in(ended: Event) -> int | None:
    """Steps that a job made after its last save, from the event of its end; None where it told none."""
    step, saved = ended.get("step"), ended.get("checkpoint_step")
    return max(0, step - saved) if isinstance(step, int) and isinstance(saved, int) else None


def _own(job: JobFacts, now: float) -> tuple[Span, ...]:
    first, asked, end = phases_of(job, now)
    last = None if job.open else end
    has_begun = first < asked or job.asked_at is not None or not job.open
    pieces: list[tuple[Part, float, float | None]] = [("start-up", job.started_at, first if has_begun else None)]
    if job.asked_at is None:
        return _kept([*pieces, ("running", first, last)])
    return _kept([*pieces, ("running", first, asked), ("saving", asked, last)])


def _gap(
    start: float | None, proven_at: float | None, submitted_at: float | None, end: float | None
) -> tuple[Span, ...]:
    """Between two jobs, by the rules of `orchestrator goodput`: blind until there is proof, waiting, then the queue."""
    if start is None:
        return () if submitted_at is None else _kept([("queue", submitted_at, end)])
    limit = end if end is not None else float("inf")
    proven, queued = phases_between(start, limit if proven_at is None else proven_at, submitted_at, limit)
    pieces: list[tuple[Part, float, float]] = [
        ("blind", start, proven), ("waiting", proven, queued), ("queue", queued, limit)
    ]  # fmt: skip
    return _kept([(part, low, None if high == float("inf") else high) for part, low, high in pieces if low < limit])


def _kept(pieces: Sequence[tuple[Part, float, float | None]]) -> tuple[Span, ...]:
    """Without those that have no length; nothing comes after one that goes on."""
    found: list[Span] = []
    for part, start, end in pieces:
        if found and found[-1].end is None:
            break
        if end is None or end > start:
            found.append(Span(part=part, start=round(start, 2), end=None if end is None else round(end, 2)))
    return tuple(found)
