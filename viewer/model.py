"""What the page shows, as frozen values: the same whether they come from a run folder or from a laptop's mirror.

A `PageSnapshot` has a line for each run and one `RunPage`, that of the run which was chosen. It is sent as JSON, first
whole, then as differences. Times are unix seconds by the clock of the machine that looked, durations seconds,
steps environment steps; None: not known (yet). Moments are absolute, so that a page on which nothing
happens stays equal; the browser makes ages of them. Every text is shown as text.
"""

from __future__ import annotations

import time
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.screens.goodput import Times
from orchestrator.screens.runview import QueueView, SlotView

#: Of the messages between server and page; the page says so where another one serves it.
VERSION = 5
#: Slots on one page: more do not fit a screen, and a look reads their files.
SLOTS_A_PAGE = 50
#: Jobs of one slot on one page of the time line.
JOBS_A_PAGE = 40
#: Events on one page of the history.
EVENTS_A_PAGE = 20
Kind = Literal["runs", "mirror", "file"]
#: What a job, or the time before it, was spent on.
Part = Literal["blind", "waiting", "queue", "start-up", "running", "saving"]


class Shown(BaseModel):
    """Base of all that is shown: immutable, no unknown fields, no number that is none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ViewChoice(Shown):
    """What one watcher looks at. `run`: an id, "" for the first. `task`: "" for the mean over tasks. `measure`: what
    the curves show, "" for success or, where none is told, return. `slots`, `jobs`, `events`: pages, 0 the first.
    `at`: an earlier moment; None: now.
    """

    run: str = ""
    task: str = ""
    measure: str = ""
    slots: int = 0
    jobs: int = 0
    events: int = 0
    at: float | None = None


class RunRow(Shown):
    """One run in the list. `state`: "" until it was read. `counts`: slots by state. `note`: why it cannot be read."""

    run_id: str
    name: str
    state: str = ""
    slots: int = 0
    counts: dict[str, int] = {}
    step: int | None = None
    total: int | None = None
    note: str = ""


class Span(Shown):
    """A part of the time line of one slot, [`start`, `end`) in unix seconds; `end` None: it goes on."""

    part: Part
    start: float
    end: float | None


class JobBar(Shown):
    """One job. `verdict`: how it ended, "" while it runs; `words`: the same as a sentence has it. `lost`: steps."""

    attempt: int
    job: str = ""
    parts: tuple[Span, ...]
    verdict: str = ""
    words: str = ""
    lost: int | None = None


class SlotTimes(Shown):
    """One row of the time line: the jobs of this page, oldest first. Over all jobs of the slot, `goodput`: from 0 to 1;
    `lost`: steps that jobs made after their last saves; `last_end`: how the last one ended, in words.
    """

    jobs: tuple[JobBar, ...] = ()
    older: int = 0
    goodput: float | None = None
    lost: int = 0
    last_end: str = ""


class CurveLine(Shown):
    """`steps` [P] ascending, `values` [P]; `low`, `high` [P] where there is an interval, else empty."""

    label: str
    kind: Literal["slot", "mean", "evaluation"]
    slot: int | None = None
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


class CurvesPanel(Shown):
    """`measure` of `task` ("": the mean over tasks). `measures`: what else could be shown. `about`: what lines and
    intervals are, in one sentence. `partial`: so many slots' files are still to be read.
    """

    measure: str = ""
    measures: tuple[str, ...] = ()
    task: str = ""
    lines: tuple[CurveLine, ...] = ()
    about: str = ""
    partial: int = 0


class TaskRow(Shown):
    """One task over the slots of this page. `training`: success (or return) of the newest training episodes; `spark`:
    its course [≤ 40], None without an episode; `evaluated`, `low`, `high`: the last evaluation with its 95 % interval
    (Wilson's); `steps_to_success`: the mean over the goals that were solved in it.
    """

    task: str
    training: float | None = None
    spark: tuple[float | None, ...] = ()
    evaluated: float | None = None
    low: float | None = None
    high: float | None = None
    steps_to_success: float | None = None


class EvaluationRow(Shown):
    """The last and the best evaluation of a slot. `score`: "success" (0 to 1, with its 95 % interval) or "return"."""

    slot: int
    name: str = ""
    score: str
    step: int
    value: float
    low: float | None = None
    high: float | None = None
    best: float
    best_step: int
    count: int
    goals: int
    steps_to_success: float | None = None


class ContributorRow(Shown):
    """Who sent experience in, in segments and rows. `state`: welcome, held or dropped."""

    who: str
    state: str
    why: str = ""
    waiting: int = 0
    accepted: int = 0
    rows: int = 0
    checked: int = 0
    solved: float | None = None
    refused: dict[str, int] = {}
    seen_at: float | None = None


class PolicyRow(Shown):
    """The newest policy of a slot."""

    slot: int
    version: str
    step: int
    created_at: float
    bytes: int
    score: str = ""


class Trouble(Shown):
    """Something that a person should know. `command`: what to type, "" where there is nothing to do. `urgent`: it does
    not go away by itself.
    """

    words: str
    command: str = ""
    urgent: bool = True


class PastMoment(Shown):
    """One thing that happened, in words."""

    at: float
    slot: int | None = None
    words: str


class HistoryPage(Shown):
    """A page of what happened, newest first. `older`: how many come before it."""

    moments: tuple[PastMoment, ...] = ()
    older: int = 0


class AgentRow(Shown):
    """A slot whose agent could be watched. `success`: of its newest policy's evaluation, `training`: of the newest
    training episodes. `at_work`: its job runs, as far as is known here. `has_policy`: one is published. `others`:
    contributors whose agents play for it, and may be watched.
    """

    slot: int
    name: str = ""
    success: float | None = None
    training: float | None = None
    step: int | None = None
    at_work: bool = True
    has_policy: bool = False
    others: tuple[str, ...] = ()


class LiveFacts(Shown):
    """What it takes to watch a run's agents. `shared`: the shared folder or mirror. `tasks`: in the training's order,
    which gives them their numbers. `top_k`: how many the run's settings name. `streams`: whether they allow watching.
    """

    run_id: str
    shared: str
    agents: tuple[AgentRow, ...] = ()
    tasks: tuple[str, ...] = ()
    top_k: int | None = None
    streams: bool | None = None


class RunPage(Shown):
    """Everything about one run. `cards`: as `orchestrator status` has its slots, without what programs report of
    themselves, and `times`: by slot, in its decimal form. `seen_at`: when its controller last wrote what it saw.
    `pages`: of slots. `goodput`: of all jobs. `lacks`: what this source cannot show, one sentence each. `begun_at`:
    the first moment that can be shown, None where only now can; `as_of`: the earlier moment that is shown.
    """

    run_id: str
    name: str
    folder: str = ""
    executor: str = ""
    state: str = ""
    controller: str = ""
    seen_at: float | None = None
    until: float | None = None
    begun_at: float | None = None
    as_of: float | None = None
    page: int = 0
    pages: int = 1
    slots: int = 0
    cards: dict[str, SlotView] = {}
    times: dict[str, SlotTimes] = {}
    goodput: Times | None = None
    curves: CurvesPanel = CurvesPanel()
    tasks: tuple[TaskRow, ...] = ()
    evaluations: tuple[EvaluationRow, ...] = ()
    queue: QueueView | None = None
    contributors: tuple[ContributorRow, ...] = ()
    policies: tuple[PolicyRow, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    history: HistoryPage = HistoryPage()
    lacks: tuple[str, ...] = ()
    live: LiveFacts | None = Field(default=None, exclude=True)  # for `viewer.live`, not for the page


class PageSnapshot(Shown):
    """All that a page shows. `source`: where it comes from; `place`: which, as a person would name it. `note`: why
    there is no run to show. `utc_offset`: s before UTC, of the time zone in which its sentences name times, that of
    the machine that looked; the page shows all times in it.
    """

    version: int = VERSION
    utc_offset: int = Field(default_factory=lambda: time.localtime().tm_gmtoff)
    source: Kind
    place: str
    note: str = ""
    runs: tuple[RunRow, ...] = ()
    run: RunPage | None = None

    @property
    def is_unread(self) -> bool:
        """Whether something of it is still to be read, with the next looks."""
        return any(not row.state for row in self.runs) or (self.run is not None and self.run.curves.partial > 0)


class ViewSource(Protocol):
    """What server, export and lines need of a source. It reads, and writes nothing; one thread uses it. `place`: what
    is shown, as a person would name it.
    """

    kind: Kind
    place: str

    @property
    def port(self) -> int | None:
        """The port that the run's settings name for its page; None: they name none, or it is not one run."""
        ...

    def look(self, choice: ViewChoice, now: float) -> PageSnapshot:
        """What there is to see at `now` (unix seconds). What cannot be read is said in the snapshot, never raised."""
        ...
