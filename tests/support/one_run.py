"""One run on one fake scheduler, with a clock of its own: for tests of the controller itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders import FORGET_AFTER_S, NOW, SUBMIT_GRACE_S, a_row, no_code

from orchestrator.config import parse_config
from orchestrator.controller import Controller
from orchestrator.decisions.models import Ledger, Slot, SubmissionState, parse_token
from orchestrator.executors.base import (
    Accounting,
    JobRequest,
    JobRow,
    JobState,
    Poll,
    SubmitOutcome,
    Submitted,
)
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.lease import Lease
from orchestrator.run.ledger import load_ledger
from orchestrator.run.rundir import RunDir

POLL_S = 30.0


@dataclass
class Cluster:
    """A scheduler that answers as it is told, and remembers what it was asked."""

    now: Callable[[], float]
    name: str = "fake"
    submit_grace_s: float = SUBMIT_GRACE_S
    queues_behind: bool = True
    avoids_nodes: bool = True
    answers: list[SubmitOutcome] = field(default_factory=list)
    rows: dict[str, JobRow] = field(default_factory=dict)
    others: int = 0
    error: str | None = None
    free_place: int | None = None
    submitted: list[str] = field(default_factory=list)
    requests: list[JobRequest] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    signalled: list[tuple[str, list[str]]] = field(default_factory=list)
    before_submit: Callable[[], None] = lambda: None

    def submit(self, request: JobRequest) -> SubmitOutcome:
        self.before_submit()
        token = Path(request.job_dir).name
        self.submitted.append(token)
        self.requests.append(request)
        place = self.free_place or 0
        answer = self.answers.pop(0) if self.answers else Submitted(job_id=str(100 + len(self.submitted)), place=place)
        if isinstance(answer, Submitted):
            self.show(request.job_dir, JobState.PENDING, answer.job_id)
        return answer

    def show(self, job_dir: str, state: JobState, job_id: str = "101", **more: Any) -> None:
        self.rows[job_dir] = a_row(state=state, job_id=job_id, work_dir=job_dir, **more)

    def poll(self) -> Poll:
        self.asked.append("queue")
        return Poll(at=self.now(), rows=tuple(self.rows.values()), others=self.others, error=self.error)

    def accounting(self, since: float) -> Accounting:
        self.asked.append("history")
        return Accounting(at=self.now(), status="ok")

    def wake(self, job_ids: list[str]) -> str | None:
        self.signalled.append(("wake", job_ids))
        return None

    def is_free(self, request: JobRequest, place: int) -> bool:
        self.asked.append("places")
        return request.places != () and self.free_place not in {None, place}

    def cancel(self, job_ids: list[str], *, waiting: bool = False) -> str | None:
        self.signalled.append(("cancel waiting" if waiting else "cancel", job_ids))
        return None

    def forget_after_s(self) -> float:
        return FORGET_AFTER_S


class World:
    """One run on one fake cluster, with a clock of its own."""

    def __init__(self, path: Path, **config: object) -> None:
        self.time = NOW
        self.run_dir = RunDir(path / "run")
        prepare_folder(self.run_dir)
        value = {"run_name": "toy", "executor": "local", "command": ["true"], **config}
        self.cluster = Cluster(now=lambda: self.time)
        self.lease = Lease.take(self.run_dir, "start", now=NOW)
        self.run = begin(parse_config(value, "c"), path / "c.json", self.run_dir, {"PATH": "/bin"}, NOW, fix=no_code)
        self.said: list[str] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.controller = self.new_controller()

    def new_controller(self) -> Controller:
        serial = iter(range(10_000))
        return Controller(
            self.run,
            self.run_dir,
            self.lease,
            self.cluster,
            poll_s=POLL_S,
            say=self.said.append,
            on_event=lambda kind, facts: self.told.append((kind, facts)),
            now=lambda: self.time,
            monotonic=lambda: self.time,
            sleep=self.sleep,
            random_hex=lambda: f"{next(serial):08x}",
            jitter=lambda: 0.5,
        )

    def sleep(self, seconds: float) -> None:
        self.time += max(seconds, 0.01)

    def tick(self, after: float = 0.0) -> None:
        self.time += after
        self.controller.tick()

    @property
    def ledger(self) -> Ledger:
        ledger = load_ledger(self.run_dir, self.run.run_id)
        assert ledger is not None
        return ledger

    @property
    def slot(self) -> Slot:
        return self.ledger.slots[0]

    def states(self) -> list[SubmissionState]:
        return [s.state for attempt in self.slot.attempts for s in attempt.submissions]

    def job_shows(self, state: JobState, which: int = 0, **more: Any) -> None:
        """The queue's row of the job that was submitted at this place."""
        job_dir = str(self.run_dir.job(self.cluster.submitted[which]))
        self.cluster.show(job_dir, state, str(101 + which), **more)

    def job_claims(
        self,
        attempt: int = 0,
        *,
        exit_code: int | None = None,
        asked: str = "deadline",
        terminated: bool = False,
        which: int = -1,
    ) -> None:
        token = self.cluster.submitted[which]
        slot, _ = parse_token(token) or (0, 0)
        folder = self.run_dir.attempt(slot, attempt)
        folder.mkdir(parents=True, exist_ok=True)
        who = {"token": token, "job_id": "101", "host": "n1", "pid": 5, "at": self.time}
        (folder / "claim").write_text(json.dumps(who))
        if exit_code is not None:
            ended = {"code": exit_code, "asked": asked, "terminated": terminated or asked == "SIGTERM"}
            (folder / "exit.json").write_text(json.dumps({**who, **ended}))
