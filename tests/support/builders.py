"""Small builders, so that tests of decisions read as sentences: `a_run(a_slot().with_attempt(a_job()))`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from orchestrator.decisions.evidence import Claim, Event, Evidence, Exit, Facts, Progress
from orchestrator.decisions.fold import fold
from orchestrator.decisions.models import (
    Attempt,
    Blind,
    Gone,
    Ledger,
    Seen,
    Slot,
    Submission,
    SubmissionState,
    make_token,
)
from orchestrator.decisions.requests import Control
from orchestrator.executors.base import Accounting, JobRow, JobState, Poll

#: The moment at which every test happens: Fri 10 Oct 2025, 08:53:20 UTC.
NOW = 1_760_086_400.0
RUN_ID = "mt10-0123abcd"
JOBS_DIR = "/runs/mt10/jobs"
#: What the fake scheduler promises: ended jobs are listed for this long; submissions show within the grace.
FORGET_AFTER_S = 300.0
SUBMIT_GRACE_S = 120.0


def no_code(folder: Path) -> str:
    """What `begin` is told in place of copying our packages into the run."""
    (folder / "0123456789abcdef").mkdir(parents=True, exist_ok=True)
    return "0123456789abcdef"


def token(slot: int = 0, attempt: int = 0, serial: int = 0) -> str:
    """The name of a submission."""
    return make_token(slot, attempt, f"{serial:08x}")


def job_dir(name: str) -> str:
    """Its work folder."""
    return f"{JOBS_DIR}/{name}"


def a_job(name: str | None = None, *, job_id: str | None = "101", at: float = NOW - 600, **more: Any) -> Submission:
    """A submission that was accepted ten minutes ago."""
    more = {"state": SubmissionState.SUBMITTED} | more
    return Submission(token=name or token(), job_id=job_id, intent_at=at, **more)


def an_intent(name: str | None = None, *, at: float = NOW - 600, **more: Any) -> Submission:
    """A submission of which nothing but the intent is known."""
    return Submission(token=name or token(), intent_at=at, **more)


def seen(state: JobState = JobState.RUNNING, *, at: float = NOW - 30) -> Seen:
    """A sighting in the queue."""
    return Seen(state=state, raw_state=state.value.upper(), at=at)


def gone(raw_state: str = "") -> Gone:
    """A proven end."""
    return Gone(proof="the test says so", at=NOW, raw_state=raw_state)


def blind(*, since: float = NOW - 60) -> Blind:
    """A sighting of nothing."""
    return Blind(since=since, error="no answer")


def a_row(name: str | None = None, state: JobState = JobState.RUNNING, raw: str | None = None, **more: Any) -> JobRow:
    """A line of the queue or of the history."""
    more = {"job_id": "101", "work_dir": job_dir(name or token())} | more
    return JobRow(state=state, raw_state=raw or state.value.upper(), **more)


def a_claim(name: str | None = None, *, job_id: str = "101", at: float = NOW - 500) -> Claim:
    """The record of the job that won an attempt."""
    return Claim(token=name or token(), job_id=job_id, host="node1", pid=4242, at=at)


def an_exit(code: int, name: str | None = None, **more: Any) -> Exit:
    """The record of a claimant's end."""
    terminated = more.get("asked") == "SIGTERM"
    return Exit(**{"token": name or token(), "code": code, "at": NOW - 5, "terminated": terminated} | more)


def progress(checkpoint_step: int, total: int = 1000, step: int | None = None) -> Progress:
    """What a program wrote about itself."""
    return Progress(step=checkpoint_step if step is None else step, total=total, checkpoint_step=checkpoint_step)


@dataclass(frozen=True)
class SlotBuilder:
    """A slot in the making."""

    built: Slot = field(default_factory=lambda: Slot(index=0))

    def with_attempt(self, *submissions: Submission, **more: Any) -> Self:
        """The next attempt, with these submissions."""
        number = more.pop("number", self.built.attempts[-1].number + 1 if self.built.attempts else 0)
        attempt = Attempt(number=number, submissions=submissions, **more)
        return self.but(attempts=(*self.built.attempts, attempt))

    def but(self, **more: Any) -> Self:
        """The same with other values."""
        return replace(self, built=self.built.model_copy(update=more))


def a_slot(index: int = 0, **more: Any) -> SlotBuilder:
    """A slot without attempts."""
    return SlotBuilder(Slot(index=index, **more))


def a_run(*slots: SlotBuilder, **more: Any) -> Ledger:
    """The ledger of a run with these slots."""
    more = {"run_id": RUN_ID, "epoch": 0} | more
    return Ledger(slots=tuple(slot.built for slot in slots), **more)


def a_wish(wish: str = "run", *, grace_s: float = 180.0) -> Control:
    """A control file."""
    return Control.model_validate({"number": 1, "wish": wish, "at": NOW - 60, "by": "stop", "grace_s": grace_s})


@dataclass(frozen=True)
class Look:
    """What one tick saw, in the making: by default a complete and empty answer, and a history that has nothing."""

    at: float = NOW
    rows: tuple[JobRow, ...] = ()
    error: str | None = None
    history: Accounting | None = field(default_factory=lambda: Accounting(at=NOW, status="ok"))
    evidence: Mapping[tuple[int, int], Evidence] = field(default_factory=dict)
    claims: Mapping[int, tuple[int, Evidence]] = field(default_factory=dict)

    def seeing(self, *rows: JobRow) -> Self:
        """These are in the queue."""
        return replace(self, rows=rows)

    def failing(self, error: str) -> Self:
        """The queue gave no answer."""
        return replace(self, error=error)

    def remembering(self, *rows: JobRow, status: str = "ok", error: str | None = None) -> Self:
        """What the history says."""
        value = {"at": self.at, "status": status, "rows": rows, "error": error}
        return replace(self, history=Accounting.model_validate(value))

    def reading(self, evidence: Evidence, slot: int = 0, attempt: int = 0) -> Self:
        """What lies in an attempt's folder."""
        return replace(self, evidence={**self.evidence, (slot, attempt): evidence})

    def finding(self, evidence: Evidence, slot: int = 0, attempt: int = 0) -> Self:
        """A claimed attempt that is newer than what the ledger knows."""
        return replace(self, claims={**self.claims, slot: (attempt, evidence)})

    @property
    def poll(self) -> Poll:
        """The queue's answer."""
        return Poll(at=self.at, rows=self.rows, error=self.error)

    def facts(self, ledger: Ledger, **more: Any) -> Facts:
        """With an empty folder for every open attempt that has no evidence. `more`: other fields of `Facts`."""
        open_attempts = {
            (slot.index, attempt.number): Evidence()
            for slot in ledger.slots
            for attempt in slot.attempts
            if attempt.verdict is None or attempt.live
        }
        return Facts(
            now=self.at,
            poll=self.poll,
            history=self.history,
            evidence={**open_attempts, **self.evidence},
            newest_claims=self.claims,
            jobs_dir=JOBS_DIR,
            forget_after_s=FORGET_AFTER_S,
            submit_grace_s=SUBMIT_GRACE_S,
            **more,
        )

    def folded_into(self, ledger: Ledger, **more: Any) -> tuple[Ledger, list[Event]]:
        """The ledger after this look, and what happened."""
        return fold(ledger, self.facts(ledger, **more))


def a_look(at: float = NOW) -> Look:
    """A look at a scheduler that answers and has nothing."""
    return Look(at=at, history=Accounting(at=at, status="ok"))
