"""Where a run's time went. Pure: the facts of a slot's jobs → seconds by kind.

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
from dataclasses import dataclass

from pydantic import computed_field

from orchestrator.executors.base import View
from orchestrator.screens.status import StaleLedger

#: A job that left no record of its end lived up to one heartbeat longer than its last sign of life. That time is
#: counted as its own, without a step in it: better too little goodput than too much. (`orchestrator.shim.HEARTBEAT_S`)
BEAT_S = 30.0


@dataclass(frozen=True)
class JobFacts:
    """One claimed attempt. Times are unix seconds, None where nobody knows (or it has not happened).

    `submitted_at`: its submission was accepted (or found). `started_at`: its first process. `first_step_at`: its first
    new step. `asked_at`: it was asked to hand over. `answered_at`: it had saved since then, or ended in order (None: it
    did neither). `ended_at`: by its own record. `seen_at`: its last sign of life. `proven_at`: the controller had proof
    of its end. `done`: steps that it did, None where the program reports none. `kept`: steps of it that count: those
    below its successor's start, or below its newest checkpoint where none has begun yet. `open`: it still runs.
    """

    attempt: int
    started_at: float
    submitted_at: float | None = None
    first_step_at: float | None = None
    asked_at: float | None = None
    answered_at: float | None = None
    ended_at: float | None = None
    seen_at: float | None = None
    proven_at: float | None = None
    done: int | None = None
    kept: int = 0
    open: bool = False


@dataclass(frozen=True)
class SlotFacts:
    """One slot. `jobs`: by attempt, ascending. `begun_at`: the first thing that happened. `queued_at`: when the job was
    submitted that is in the queue now. `over`: it wants no job now (finished, stopped, given up).
    """

    slot: int
    jobs: tuple[JobFacts, ...] = ()
    begun_at: float | None = None
    queued_at: float | None = None
    over: bool = False


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
    """The times of a run: the sum over its slots. `at`: unix seconds; jobs that still run are counted up to it.
    `stale`: as `RunView` has it.
    """

    run_id: str
    run_name: str
    run_dir: str
    at: float
    stale: StaleLedger | None = None
    times: Times
    slots: tuple[SlotGoodput, ...] = ()


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


def times_of(job: JobFacts, now: float) -> Times:
    """The four parts of one job. A job that runs has lost nothing yet."""
    end = end_of(job, now)
    asked = _between(job.started_at, job.asked_at if job.asked_at is not None else end, end)
    if job.first_step_at is not None:
        first = _between(job.started_at, job.first_step_at, asked)
    else:  # who reports no steps is taken to work from the start, once something is saved; who does had none yet
        has_none = job.done == 0 or (job.open and job.done is None and job.kept == 0)
        first = asked if has_none else job.started_at
    working = asked - first
    good = working * _kept_share(job)
    answered = end if job.open else _between(asked, job.answered_at if job.answered_at is not None else asked, end)
    return Times(
        start_up_s=first - job.started_at,
        productive_s=good,
        lost_s=working - good + end - answered,
        saving_s=answered - asked,
    )


def _kept_share(job: JobFacts) -> float:
    if job.open:
        return 1.0
    if not job.done:  # nothing reported: all of it, if anything was kept
        return 1.0 if job.kept > 0 else 0.0
    return min(1.0, max(0, job.kept) / job.done)


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


def _gap(start: float, proven_at: float, submitted_at: float | None, end: float) -> Times:
    """One gap: blind until there was proof, then waiting, then queue from the submission that ends it."""
    proven = _between(start, proven_at, end)
    queued = _between(proven, submitted_at, end) if submitted_at is not None else end
    return Times(blind_s=proven - start, waiting_s=queued - proven, queue_s=end - queued)
