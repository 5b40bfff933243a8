"""What jobs write of themselves (the only source that proves a clean end), and all that one tick saw. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import ConfigDict

from orchestrator.decisions.models import Attempt, Slot, parse_token
from orchestrator.executors.base import Accounting, Frozen, JobRow, Poll
from orchestrator.sections import QueueSection, RelaySection, SlurmSection


class Lenient(Frozen):
    """A record written by a job: other fields may be there."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Claim(Lenient):
    """The winner of an attempt. `gpus`: as the node names them. `start`: of its job, by Slurm's clock, or empty."""

    token: str | None
    job_id: str
    host: str
    pid: int
    at: float
    gpus: str = ""
    start: str = ""


class Exit(Lenient):
    """How the claimant's program ended. `code` is negative for a signal. `deadline`: when it would have been asked to
    hand over, unix seconds on the node's clock. `asked`: by what it was first asked to end; `terminated`: whether a
    SIGTERM came, then or later. `given`: of an end with 0, what the program was given (`jobside.given`). `newest`:
    the highest step of the checkpoints in its folder, as its own node saw it; None: it has none. `misnamed`: where it
    has none, a name there that holds a step and is none (`orchestrator.jobside`).
    """

    token: str | None
    code: int
    at: float
    started_at: float | None = None
    asked: str | None = None
    terminated: bool = False
    asked_at: float | None = None
    first_progress_at: float | None = None
    deadline: float | None = None
    superseded_by: int | None = None
    words: str = ""
    given: str = ""
    newest: int | None = None
    misnamed: str = ""

    @property
    def time_used(self) -> float | None:
        """The share of its time until the deadline; None where that is not known."""
        if self.deadline is None or self.started_at is None or self.deadline <= self.started_at:
            return None
        return (self.at - self.started_at) / (self.deadline - self.started_at)


class Progress(Lenient):
    """`progress.json`, where the program writes one, with whatever else it reports."""

    model_config = ConfigDict(frozen=True, extra="allow")

    step: int
    total: int
    checkpoint_step: int
    at: float = 0.0

    def metric(self, name: str) -> float | None:
        """None where that is no finite number."""
        value = (self.model_extra or {}).get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
            return None
        return float(value)


class Beat(Lenient):
    """`heartbeat.json`."""

    beat: int


class Parent(Lenient):
    """`parent.json`: what the attempt started from."""

    step: int


class Duplicate(Lenient):
    """The record of a job that found the attempt taken, or (`unneeded`: why) that its slot has no use for it."""

    token: str
    unneeded: str | None = None


class Evidence(Frozen):
    """What the controller uses of one attempt's folder, as it is seen from here, up to a minute late. `duplicates`:
    jobs that ended without a claim, by their own record; `declined`: those that were queued behind another job and were
    not needed. `log_tail`: of the claimant, read when an end is to be judged. `has_output`: it has a file, or nobody
    looked.
    """

    claim: Claim | None = None
    exit: Exit | None = None
    progress: Progress | None = None
    beat: int = -1
    start_step: int = 0
    newest_checkpoint: int | None = None
    duplicates: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    log_tail: str = ""
    has_output: bool = True

    @property
    def left_nothing(self) -> bool:
        """Whether its job has not even an output file, which the batch system makes before the script runs."""
        return self.claim is None and not self.has_output

    @property
    def saved_step(self) -> int | None:
        """The step of the newest checkpoint, such that a successor finds it; None: there is none. What the program
        reports of one counts only where its node did not look at its end, or where no successor is to come.
        """
        ended, progress = self.exit, self.progress
        steps = [self.newest_checkpoint, ended.newest if ended is not None else None]
        if progress is not None and (ended is None or "newest" not in ended.model_fields_set or self.is_complete):
            steps.append(progress.checkpoint_step)
        return max([step for step in steps if step is not None], default=None)

    @property
    def made_progress(self) -> bool:
        """Whether the attempt left a checkpoint beyond where it began, such that a successor finds it."""
        saved = self.saved_step
        return saved is not None and saved > self.start_step

    @property
    def is_complete(self) -> bool:
        """Whether the program ended well, and with all that it was to do."""
        ended, progress = self.exit, self.progress
        return (
            ended is not None and ended.code == 0 and (progress is None or progress.checkpoint_step >= progress.total)
        )


#: One line of history in the making: its kind and its facts.
Event = dict[str, Any]


def event(kind: str, slot: Slot, attempt: Attempt, **more: Any) -> Event:
    """An event of one attempt."""
    return {"kind": kind, "slot": slot.index, "attempt": attempt.number, **more}


@dataclass(frozen=True)
class Facts:
    """`evidence`: by (slot, attempt). `newest_claims`: by slot, the highest claimed attempt that the ledger does not
    know. `ahead`: tokens of jobs that were queued behind another, of those that the ledger does not know.
    `since_last_look_s`: how long nobody looked. `disk_full`, `out_of_inodes`: of the run folder's disk. `avoids_nodes`:
    a job can be told where not to run. `trainer`: its program is ours. `lacking`: a job's last words are that a program
    is missing there, and this machine lacks one, too.
    """

    now: float
    poll: Poll
    history: Accounting | None
    evidence: Mapping[tuple[int, int], Evidence]
    newest_claims: Mapping[int, tuple[int, Evidence]]
    jobs_dir: str
    forget_after_s: float
    submit_grace_s: float
    ahead: frozenset[str] = frozenset()
    since_last_look_s: float = 0.0
    relay: RelaySection = field(default_factory=RelaySection)
    queue: QueueSection = field(default_factory=QueueSection)
    slurm: SlurmSection = field(default_factory=SlurmSection)
    disk_full: bool = False
    out_of_inodes: bool = False
    avoids_nodes: bool = True
    trainer: bool = False
    lacking: bool = False

    def job_dir(self, token: str) -> str:
        """The work folder that identifies a submission."""
        return f"{self.jobs_dir}/{token}"

    def past_of(self, token: str) -> JobRow | None:
        """What the history tells of a submission."""
        history = self.history
        return history.of(self.job_dir(token)) if history is not None and history.status == "ok" else None

    @cached_property
    def heard_of(self) -> frozenset[str]:
        """Tokens of jobs that somebody else speaks of: the queue, or a claim."""
        claims = [evidence.claim for evidence in self.evidence.values() if evidence.claim is not None]
        return frozenset(self.poll.alive) | {claim.token for claim in claims if claim.token}

    @cached_property
    def rows_of_slot(self) -> dict[int, list[tuple[int, str, JobRow]]]:
        """By slot, the jobs of this run that are not over: (attempt, token, row)."""
        found: dict[int, list[tuple[int, str, JobRow]]] = {}
        for token, row in self.poll.alive.items():
            parsed = parse_token(token)
            if parsed is not None and row.work_dir.rstrip("/") == self.job_dir(token):
                found.setdefault(parsed[0], []).append((parsed[1], token, row))
        return found
