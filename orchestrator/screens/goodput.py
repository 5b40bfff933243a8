"""`goodput`: where a run's time went. Pure: the facts of a slot's jobs → seconds by kind → the screen.

A job's own time has four parts that add up to it exactly: start-up (until its first new step), productive (steps that
were kept), lost (steps that no later job began with, at this job's own rate, and whatever a program did after a request
to hand over that it did not answer), saving (from the request to its answer: a save, or an orderly end). Their sum over
all jobs is the allocated time, and

    goodput = productive / allocated

What lies between two jobs of a slot is nobody's allocation: blind (a job left no record of its end, until the
controller had proof of it), queue (a submitted job waits), waiting (nothing was submitted: delays after failures, a
limit on jobs, nobody's controller, a stop).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import computed_field
from rich.console import Group, RenderableType
from rich.text import Text

from anchorleg.words import counted, folded
from orchestrator.executors.base import View
from orchestrator.screens.cells import span, stale_words, table
from orchestrator.screens.runview import JobFacts, RunView, SlotFacts, StaleLedger

#: A job that left no record of its end lived up to one heartbeat (`orchestrator.shim.HEARTBEAT_S`) longer than its last
#: sign of life. That counts as its own, without a step in it: better too little goodput than too much.
BEAT_S = 30.0
#: Column and field, in the order in which a job lives.
KINDS = tuple(
    (kind, f"{kind.replace('-', '_')}_s")
    for kind in ("queue", "waiting", "blind", "start-up", "productive", "lost", "saving")
)
LEGEND = "goodput = productive / (start-up + productive + lost + saving)"


class Times(View):
    """Seconds by kind; see the module."""

    queue_s: float = 0.0
    waiting_s: float = 0.0
    start_up_s: float = 0.0
    productive_s: float = 0.0
    saving_s: float = 0.0
    lost_s: float = 0.0
    blind_s: float = 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def allocated_s(self) -> float:
        """The time that jobs held their nodes."""
        return self.start_up_s + self.productive_s + self.saving_s + self.lost_s

    @computed_field  # type: ignore[prop-decorator]
    @property
    def goodput(self) -> float | None:
        """From 0 to 1; None where no job has run."""
        return self.productive_s / self.allocated_s if self.allocated_s > 0 else None


class JobGoodput(View):
    """The times of one attempt's job."""

    attempt: int
    times: Times


class SlotGoodput(View):
    """The times of one slot; `jobs` add up to its allocated time."""

    slot: int
    times: Times
    jobs: tuple[JobGoodput, ...] = ()


class RunGoodput(View):
    """The times of a run: the sum over its slots. `at`: unix seconds; jobs that still run are counted up to it."""

    run_id: str
    run_name: str
    run_dir: str
    at: float
    stale: StaleLedger | None = None
    times: Times
    slots: tuple[SlotGoodput, ...] = ()


def goodput_of(view: RunView, now: float) -> RunGoodput:
    """Where the time of a run went until `now`. `view`: read with all jobs."""
    slots = tuple(account(facts, now) for facts in (view.source.jobs if view.source is not None else ()))
    run = {name: getattr(view, name) for name in ("run_id", "run_name", "run_dir", "stale")}
    return RunGoodput(**run, at=now, times=total([slot.times for slot in slots]), slots=slots)


def total(parts: Sequence[Times]) -> Times:
    """The sum of each kind."""
    return Times(**{name: sum(getattr(part, name) for part in parts) for name in Times.model_fields})


def end_of(job: JobFacts, now: float) -> float:
    """Until when the job's time counts as its own."""
    if job.open:
        return max(now, job.started_at)
    if job.ended_at is not None:
        return max(job.ended_at, job.started_at)
    last = max(job.started_at, job.seen_at or job.started_at)
    return max(last, min(last + BEAT_S, job.proven_at or now))


def phases_of(job: JobFacts, now: float) -> tuple[float, float, float]:
    """Until when (unix seconds) the job starts up, works, and lives."""
    end = end_of(job, now)
    asked = _between(job.started_at, job.asked_at if job.asked_at is not None else end, end)
    if job.first_step_at is not None:
        return _between(job.started_at, job.first_step_at, asked), asked, end
    # A program that reports no steps is taken to work from the start, once something is saved.
    has_none = job.done == 0 or (job.open and job.done is None and job.kept == 0)
    return (asked if has_none else job.started_at), asked, end


def times_of(job: JobFacts, now: float) -> Times:
    """The four parts of one job. A job that runs has lost nothing yet."""
    first, asked, end = phases_of(job, now)
    working = asked - first
    if job.open or not job.done:  # of steps that nobody reported all count, if anything was kept
        share = 1.0 if job.open or job.kept > 0 else 0.0
    else:
        share = min(1.0, max(0, job.kept) / job.done)
    good = working * share
    answered = end if job.open else _between(asked, job.answered_at if job.answered_at is not None else asked, end)
    return Times(
        start_up_s=first - job.started_at,
        productive_s=good,
        lost_s=working - good + end - answered,
        saving_s=answered - asked,
    )


def _between(low: float, value: float, high: float) -> float:
    return min(max(low, value), high)


def account(facts: SlotFacts, now: float) -> SlotGoodput:
    """All of a slot's time: its jobs' parts, and what lay between them (overlapping jobs leave no gap)."""
    jobs = tuple(JobGoodput(attempt=job.attempt, times=times_of(job, now)) for job in facts.jobs)
    return SlotGoodput(slot=facts.slot, times=total([*(job.times for job in jobs), *_gaps(facts, now)]), jobs=jobs)


def _gaps(facts: SlotFacts, now: float) -> list[Times]:
    gaps: list[Times] = []
    at = proven_at = min([job.started_at for job in facts.jobs] + [now if facts.begun_at is None else facts.begun_at])
    for job in sorted(facts.jobs, key=lambda job: job.started_at):
        if job.started_at > at:
            gaps.append(_gap(at, proven_at, job.submitted_at, job.started_at))
        end = end_of(job, now)
        if end >= at:
            at, proven_at = end, end
            if job.ended_at is None and not job.open:
                proven_at = job.proven_at if job.proven_at is not None else now
    if now > at and not facts.over:
        gaps.append(_gap(at, proven_at, facts.queued_at, now))
    return gaps


def phases_between(start: float, proven_at: float, submitted_at: float | None, end: float) -> tuple[float, float]:
    """Until when (unix seconds) a gap is blind, and is waiting: it is queue from the submission that ends it."""
    proven = _between(start, proven_at, end)
    return proven, _between(proven, submitted_at, end) if submitted_at is not None else end


def _gap(start: float, proven_at: float, submitted_at: float | None, end: float) -> Times:
    proven, queued = phases_between(start, proven_at, submitted_at, end)
    return Times(blind_s=proven - start, waiting_s=queued - proven, queue_s=end - queued)


def goodput_table(view: RunGoodput, width: int) -> RenderableType:
    """One line a slot, and their sum where there are several; the lines for a pipe where that is too wide."""
    names = ["slot", "jobs", "goodput", *(name for name, _ in KINDS)]
    rows = [[str(slot.slot), f"{len(slot.jobs):,}", *_cells(slot.times)] for slot in view.slots]
    if len(view.slots) > 1:
        rows.append(["all", f"{_jobs(view):,}", *_cells(view.times)])
    shown = table(names, rows, gap=1)
    if max(map(len, shown.plain.splitlines())) <= width:
        old = [Text(folded(line, width), style="yellow") for line in _stale_lines(view)]
        return Group(*old, shown, Text(LEGEND, style="dim"))
    return Group(*(Text(folded(line, width)) for line in goodput_lines(view)), Text(folded(LEGEND, width), style="dim"))


def goodput_lines(view: RunGoodput) -> list[str]:
    """The same for a pipe."""
    lines = [_line(f"slot {slot.slot}", len(slot.jobs), slot.times) for slot in view.slots]
    return [*_stale_lines(view), _line(view.run_name, _jobs(view), view.times), *lines]


def _stale_lines(view: RunGoodput) -> list[str]:
    return [] if view.stale is None else [stale_words(view.stale, view.at, view.run_dir)]


def _jobs(view: RunGoodput) -> int:
    return sum(len(slot.jobs) for slot in view.slots)


def _cells(times: Times) -> list[str]:
    share = "-" if times.goodput is None else f"{100 * times.goodput:.2f} %"
    return [share, *(_told(getattr(times, field)) for _, field in KINDS)]


def _line(name: str, jobs: int, times: Times) -> str:
    share, *told = _cells(times)
    parts = [f"{kind} {words}" for (kind, _), words in zip(KINDS, told, strict=True) if words]
    return ", ".join([f"{name}: goodput {share}", counted(jobs, "job"), *parts])


def _told(seconds: float) -> str:
    """Short times too, so that the cause of a low goodput is never 0:00:00."""
    return span(seconds) if seconds >= 1 else f"{seconds:.1f} s" if seconds >= 0.05 else ""
