"""The ledger: what the controller must not forget, as frozen models; and what a tick may do, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.executors.base import TOKEN, Frozen, JobLook, JobState

LEDGER_VERSION = 1


def make_token(slot: int, attempt: int, random_hex: str) -> str:
    """The name of one submission, and of its job folder. `random_hex`: 8 hex digits."""
    return f"s{slot}-a{attempt}-{random_hex}"


def parse_token(token: str) -> tuple[int, int] | None:
    """(slot, attempt) of a token; None where it is none of ours."""
    match = TOKEN.match(token)
    return (int(match[1]), int(match[2])) if match else None


class Seen(JobLook):
    """The job is there, as of `at`."""

    kind: Literal["seen"] = "seen"
    at: float


class Gone(Frozen):
    """The job has ended. `raw_state`: the scheduler's word for how, where it said one. `by_job`: the job said so
    itself, which is final. `ran_s`: from its start to its end as the scheduler tells it.
    """

    kind: Literal["gone"] = "gone"
    proof: str
    at: float
    by_job: bool = False
    raw_state: str = ""
    node: str = ""
    ran_s: float | None = None


class Blind(Frozen):
    """We could not see. It never means that the job has ended: the slot stays occupied. `proven_at`: from when on the
    same sight is proof of its end, unless it gives a sign of life before (None: an answer must come first).
    """

    kind: Literal["blind"] = "blind"
    since: float
    error: str
    proven_at: float | None = None


Sighting = Annotated[Seen | Gone | Blind, Field(discriminator="kind")]


class SubmissionState(StrEnum):
    """INTENT: written before sbatch. UNCERTAIN: sbatch gave no clear answer. NOT_SUBMITTED, ENDED: proven."""

    INTENT = "intent"
    SUBMITTED = "submitted"
    UNCERTAIN = "uncertain"
    NOT_SUBMITTED = "not submitted"
    ENDED = "ended"

    @property
    def shown(self) -> str:
        """The word for people."""
        return "queued" if self is SubmissionState.INTENT else str(self)


class Submission(Frozen):
    """One sbatch of one attempt. `absent_since`: the first complete poll that did not have it, after it was seen.
    `cancelled_at`, `cancelled_for`: our own cancel, noted before it is sent, so that it is never taken for a person's.
    `node`: where it was last seen. `after`: the job id that it is queued behind. `exclude`: nodes that it was told to
    avoid. `stuck_since`: the first look that showed it waiting for what will never come. `place`: its number of those
    where it may start. `released_at`: only in ledgers of an older program. `left_since`: the first look that showed it
    in the queue although it has said that it has ended.
    """

    token: str
    intent_at: float
    state: SubmissionState = SubmissionState.INTENT
    job_id: str | None = None
    sighting: Sighting | None = None
    absent_since: float | None = None
    cancelled_at: float | None = None
    cancelled_for: str = ""
    released_at: float | None = None
    stuck_since: float | None = None
    left_since: float | None = None
    node: str = ""
    after: str | None = None
    exclude: tuple[str, ...] = ()
    place: int = 0
    note: str = ""

    @property
    def is_live(self) -> bool:
        """Whether it may hold a job in the queue."""
        return self.state is not SubmissionState.ENDED and self.state is not SubmissionState.NOT_SUBMITTED

    def was_seen(self, state: JobState) -> bool:
        """Whether the last look showed its job in this state."""
        return isinstance(self.sighting, Seen) and self.sighting.state is state


class Verdict(StrEnum):
    """How an attempt ended."""

    FINISHED = "finished"
    HANDED_OVER = "handed over"
    PREEMPTED = "preempted"
    NODE_FAILED = "node failed"
    NO_ROOM = "no room"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"
    CANCELLED = "cancelled"
    NO_PROGRESS = "no progress"
    STALLED = "stalled"
    SUPERSEDED = "superseded"
    NOT_NEEDED = "not needed"
    DO_NOT_REQUEUE = "do not requeue"


class Attempt(Frozen):
    """One attempt of a slot: its submissions (usually one) and, once over, how it ended. `claimed_by`: the token that
    won the claim. `claim_seen_at`, `heartbeat_changed_at`: by our clock, so that a node's wrong one cannot make a live
    job look silent. `ahead`: it is queued behind the attempt before it, and is not the slot's current one yet.
    `progress_mark`: what the program last reported; `quiet_s`: for how long we have watched it report nothing new;
    `aborted_at`: when it was told to print its stacks and end. `node`: where the claimant ran. `exit_code`, `asked`,
    `terminated`, `given`: of its own record, once it has ended.
    """

    number: int
    submissions: tuple[Submission, ...] = ()
    claimed_by: str | None = None
    claim_seen_at: float | None = None
    heartbeat: int = -1
    heartbeat_changed_at: float | None = None
    ahead: bool = False
    node: str = ""
    progress_mark: str = ""
    quiet_s: float = 0.0
    aborted_at: float | None = None
    asked_to_hand_over_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    start_step: int = 0
    checkpoint_step: int | None = None
    exit_code: int | None = None
    asked: str = ""
    terminated: bool = False
    given: str = ""
    verdict: Verdict | None = None
    cause: str = ""

    @cached_property
    def live(self) -> tuple[Submission, ...]:
        """Those that may hold a job."""
        return tuple([s for s in self.submissions if s.is_live])

    @property
    def decisive(self) -> tuple[Submission, ...]:
        """Those whose end is the attempt's end, the newest last: the claimant's, else all."""
        return tuple([s for s in self.submissions if s.token == self.claimed_by]) or self.submissions

    @property
    def is_left(self) -> bool:
        """Whether the scheduler still has a job of it that has ended."""
        return any(submission.left_since is not None for submission in self.submissions)


class SlotStatus(StrEnum):
    """ACTIVE: to be kept at one live job. FINISHED: its program is done. FAILED: stopped by us, `why` says it.
    PAUSED: a person cancelled its job or paused the slot. DROPPED: a person has no more use for it. BEHIND: successive
    halving has stopped it.
    """

    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    DROPPED = "dropped"
    BEHIND = "behind"


class Raised(Frozen):
    """What a slot's jobs ask for where the config asks for less: memory in MB, a walltime in s; 0: as the config."""

    mem_mb: int = 0
    time_limit: int = 0


class Slot(Frozen):
    """One of the N jobs kept going. `attempts`: the newest few, oldest first; older ones live in the event log. In a
    row without a new checkpoint: `failures` of the program, `node_failures` of nodes (they delay, and never end the
    slot), `stalls`. `early_ends`: in a row, with something saved, that nobody asked for. `not_before`: no submission
    earlier; `ahead_not_before`: no queued successor earlier. `put_off_since`: the first refusal for good since a job of
    it last ran or `start` was typed (`why` may tell of something else since then). `on_request`: `orchestrator pause`
    paused it, and only `resume` goes on with it. `priority`: as a person changed it, None: the config's. `worked_s`: of
    all its ended jobs. `metric`: as its program last told it (`QueueSection`); `best`: the best so far, told at step
    `best_step`. `rungs`: the metric at each rung of successive halving that it has reached; `level`: how many it may
    pass. `usual_s`: the longest usual silence between two reports. `good_node`: where it last left a new checkpoint.
    `hand_over_s`: how long its last hand-overs took, from the request to the end.
    """

    index: int
    status: SlotStatus = SlotStatus.ACTIVE
    why: str = ""
    attempts: tuple[Attempt, ...] = ()
    not_before: float = 0.0
    ahead_not_before: float = 0.0
    put_off_since: float | None = None
    on_request: bool = False
    priority: int | None = None
    worked_s: float = 0.0
    metric: float | None = None
    best: float | None = None
    best_step: int | None = None
    rungs: tuple[float, ...] = ()
    level: int = 0
    failures: int = 0
    node_failures: int = 0
    stalls: int = 0
    early_ends: int = 0
    usual_s: float = 0.0
    good_node: str = ""
    hand_over_s: tuple[float, ...] = ()
    raised: Raised | None = None
    jobs: int = 0
    hand_overs: int = 0
    step: int = 0
    total: int | None = None

    @property
    def current(self) -> Attempt | None:
        """The newest attempt that is not queued behind another one."""
        for attempt in reversed(self.attempts):
            if not attempt.ahead:
                return attempt
        return None

    @cached_property
    def is_quiet(self) -> bool:
        """Whether all of its attempts are over, with nothing of them in the queue."""
        return all(one.verdict is not None and not one.live and not one.is_left for one in self.attempts)

    @cached_property
    def as_json(self) -> str:
        """As it stands in the ledger's file. Most slots do not change at a look."""
        return self.model_dump_json(exclude_none=True)

    @property
    def put_aside(self) -> bool:
        """Whether it is to have no job until a person, or successive halving, says otherwise."""
        return self.status in {SlotStatus.DROPPED, SlotStatus.BEHIND} or self.on_request

    @cached_property
    def occupied(self) -> bool:
        """Whether one of its submissions may hold a job."""
        return any(attempt.live for attempt in reversed(self.attempts))

    @property
    def successor(self) -> Attempt | None:
        """The attempt that is queued behind the current one, while it is to come."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.ahead and last.verdict is None else None


class Death(Frozen):
    """An early end on a node. `cause`: as its program said it. `served_elsewhere`: another node did its slot well."""

    slot: int
    at: float
    cause: str = ""
    served_elsewhere: bool = False


class BadNode(Frozen):
    """A node on which jobs died early. `excluded_until`: no job of this run goes there before (0: it may)."""

    node: str
    deaths: tuple[Death, ...] = ()
    excluded_until: float = 0.0


class Ledger(Frozen):
    """The state of one run, as its owner of `epoch` last wrote it. `beat` changes with every write. `control`,
    `requests`: the newest of each that was taken up. `nodes`: those that are remembered for early deaths. `blind_told`:
    the command hook has heard of this blindness. `full_at`: at so many jobs of the user the scheduler refused another,
    in its `full_words`; until `full_until` none is tried beyond them. `measured_by`: the settings of the queue by which
    the slots' metrics and rungs are.
    """

    version: int = LEDGER_VERSION
    run_id: str
    epoch: int
    beat: int = 0
    written_at: float = 0.0
    control: int = 0
    requests: int = 0
    full_at: int | None = None
    full_until: float = 0.0
    full_words: str = ""
    measured_by: str = ""
    blind_since: float | None = None
    blind_error: str = ""
    blind_told: bool = False
    nodes: tuple[BadNode, ...] = ()
    slots: tuple[Slot, ...] = ()

    @property
    def had_jobs(self) -> bool:
        """Whether a job of any slot has run: all ask the scheduler for the same, so what they ask for can be had."""
        return any(slot.jobs > 0 for slot in self.slots)


@dataclass(frozen=True)
class Submit:
    """Submit `attempt` of `slot` under `token`. `exclude`: nodes to avoid. For a queued successor, `after`: the job
    to queue behind, and `behind`: that job's attempt. `level`: how many rungs of successive halving it may pass from
    now on, where that changes. `raised`: what it asks for beyond the config.
    """

    slot: int
    attempt: int
    token: str
    after: str | None = None
    behind: int | None = None
    exclude: tuple[str, ...] = ()
    level: int | None = None
    raised: Raised | None = None


@dataclass(frozen=True)
class HandOver:
    """Ask a running job to save and exit."""

    slot: int
    attempt: int
    token: str
    job_id: str | None


@dataclass(frozen=True)
class Cancel:
    """End a job. `why` goes into the history."""

    slot: int
    attempt: int
    token: str
    job_id: str
    why: str


@dataclass(frozen=True)
class Abort:
    """Make a program that reports nothing any more print its stacks and end."""

    slot: int
    attempt: int
    token: str
    why: str


Action = Submit | HandOver | Cancel | Abort
