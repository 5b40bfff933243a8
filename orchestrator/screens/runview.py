"""`RunView`: everything that screens show of a run, frozen. `orchestrator.screens.reading` makes it from the run's
files; `status`, `explain`, `goodput`, their `--json`, the board and the page are renderings of it.

Times are unix seconds by the controller's clock, durations seconds; None: not known (yet). The fields are documented
for users in docs/watching.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, InstanceOf

from orchestrator.decisions.models import Ledger, Verdict
from orchestrator.decisions.reasons import Kind
from orchestrator.executors.base import Frozen, View
from orchestrator.run.rundir import Run
from orchestrator.screens.timeline import Event

RunState = Literal["running", "stopping", "stopped", "finished", "failed", "paused", "no controller"]

#: The states of slots, in the order in which people look at them.
STATES = (
    "running", "handing over", "starting", "stalled", "suspended", "pending", "submitted", "queued", "uncertain",
    "blind", "failed", "paused", "waiting", "behind", "finished", "stopped", "dropped",
)  # fmt: skip
#: In these a slot does nothing more, unless a person starts or resumes it.
OVER = frozenset({"finished", "failed", "stopped", "paused", "dropped", "behind"})


class Forecast(Frozen):
    """`more_jobs`: after the present one. `waits_included`: whether the waits between them are in `finish_in_s`."""

    finish_in_s: float
    more_jobs: int
    waits_included: bool


class SuccessorView(View):
    """The job that is queued behind a slot's running one. `why`: where it waits for more than the job before it."""

    attempt: int
    job_id: str | None
    state: str
    why: str = ""
    reason: str = ""


class SlotView(View):
    """One slot. `name`: of its experiment; `best`: its best value of `queue.metric` so far. `why`: what it waits for;
    `reason`: the scheduler's own word for that, `kind`: whether waiting helps. `expected_start_at`: the scheduler's
    guess. `retry_at`: no job is submitted before. `gpus`: of its running job, as the node numbers them ("0,1"). `rate`:
    steps per second. `silent_s`: for how long the controller has seen no new report of the program. `progress`: what
    the program reports beside its steps.
    """

    slot: int
    name: str = ""
    state: str
    why: str = ""
    next: str = ""
    reason: str = ""
    kind: Kind | None = None
    attempt: int | None = None
    job_id: str | None = None
    node: str = ""
    gpus: str = ""
    started_at: float | None = None
    ends_at: float | None = None
    shortened: str = ""
    expected_start_at: float | None = None
    retry_at: float | None = None
    successor: SuccessorView | None = None
    start_step: int | None = None
    step: int | None = None
    total: int | None = None
    checkpoint_step: int | None = None
    rate: float | None = None
    best: float | None = None
    silent_s: float | None = None
    forecast: Forecast | None = None
    progress: dict[str, Any] = Field(default_factory=dict)
    jobs: int = 0
    hand_overs: int = 0
    failures: int = 0
    failure_budget: int = 0
    last_verdict: Verdict | None = None
    last_cause: str = ""
    warning: str = ""
    raised: str = ""


class ExcludedNode(View):
    """A node that no job of this run goes to before `until`, for so many early deaths."""

    node: str
    until: float
    deaths: int


class SlotScore(View):
    """The best value of the metric that one slot has reported, and at which step."""

    slot: int
    name: str
    value: float
    step: int | None


class QueueView(View):
    """The experiments of a run. `counts`: how many slots are in each state. `best`: all by `metric`, the best first."""

    counts: dict[str, int]
    metric: str | None = None
    best: tuple[SlotScore, ...] = ()


class StaleLedger(View):
    """Nobody has written what happened since `since`. `free_bytes`: on the run folder's disk, where that is full (None:
    the reason is not known). `out_of_inodes`: what is full is its table of files.
    """

    since: float
    free_bytes: int | None = None
    out_of_inodes: bool = False


@dataclass(frozen=True)
class JobFacts:
    """One claimed attempt.

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
    """The jobs of one slot, by attempt, ascending. `begun_at`: the first thing that happened. `queued_at`: when the job
    was submitted that is in the queue now. `over`: it wants no job now (finished, stopped, given up).
    """

    slot: int
    jobs: tuple[JobFacts, ...] = ()
    begun_at: float | None = None
    queued_at: float | None = None
    over: bool = False


class RunEvents:
    """The history: `all` events, oldest first, and those of one slot."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.all, self._by_slot = events, dict[int, list[Event]]()
        for event in events:
            if isinstance(slot := event.get("slot"), int) and "at" in event and "kind" in event:
                self._by_slot.setdefault(slot, []).append(event)

    def of(self, slot: int) -> Sequence[Event]:
        """Those of one slot, oldest first."""
        return self._by_slot.get(slot, ())


@dataclass(frozen=True)
class RunSource:
    """What a view was made from. `jobs`: of each slot that the ledger knows. `events`, `jobs`: if asked for."""

    run: Run
    ledger: Ledger | None
    events: RunEvents = field(default_factory=RunEvents)
    jobs: tuple[SlotFacts, ...] = ()


class RunView(View):
    """One run. `written_at`: when the controller last wrote what it saw. `stale`: that is too long ago. `blind_since`:
    the queue has not been seen since then. `controller`: who looks after the run, None where nobody does;
    `failover_tick`: whether its jobs do when they end. `wish`, `wished_by`: the newest of `start` and `stop`; `until`:
    when `start --for` stops it. `queue`: of experiments. `source`: in no JSON.
    """

    run_id: str
    run_name: str
    run_dir: str
    executor: str
    state: RunState
    controller: str | None
    controller_epoch: int
    wish: str
    wished_by: str = ""
    until: float | None = None
    written_at: float | None
    stale: StaleLedger | None = None
    blind_since: float | None = None
    blind_error: str = ""
    failover_tick: bool = False
    excluded_nodes: tuple[ExcludedNode, ...] = ()
    queue: QueueView | None = None
    slots: tuple[SlotView, ...] = ()
    source: InstanceOf[RunSource] | None = Field(default=None, exclude=True, repr=False)
