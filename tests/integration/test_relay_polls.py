"""Between two looks at the queue the controller ticks too: an old answer says nothing about a younger job."""

from __future__ import annotations

import os
import time
from pathlib import Path

from relay import NewRelay

from orchestrator.config import load_config
from orchestrator.controller import Controller
from orchestrator.decisions.models import Blind
from orchestrator.executors.base import Accounting, JobRequest, Poll, Submitted
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.lease import Lease
from orchestrator.run.rundir import RunDir


class SlowQueue:
    """An executor whose jobs take long to start. Counts what it is asked."""

    name = "slow"
    queues_behind = True
    avoids_nodes = True
    submit_grace_s = 60.0

    def __init__(self) -> None:
        self.asked: list[str] = []

    def submit(self, request: JobRequest) -> Submitted:
        return Submitted(job_id=str(100 + len(self.asked)))

    def poll(self) -> Poll:
        self.asked.append("queue")
        return Poll(at=time.time())

    def accounting(self, since: float) -> Accounting:
        self.asked.append("history")
        return Accounting(at=time.time(), status="ok")

    def wake(self, job_ids: list[str]) -> str | None:
        return None

    def cancel(self, job_ids: list[str]) -> str | None:
        return None

    def forget_after_s(self) -> float:
        return 300.0


def test_a_job_is_not_missed_in_an_answer_that_is_older_than_it(new_relay: NewRelay, tmp_path: Path) -> None:
    relay = new_relay()
    run_dir = RunDir(relay.run_dir)
    prepare_folder(run_dir)
    lease = Lease.take(run_dir, "start", now=time.time())
    run = begin(load_config(relay.config), relay.config, run_dir, os.environ, time.time())
    executor = SlowQueue()
    controller = Controller(run, run_dir, lease, executor, poll_s=30.0, monotonic=lambda: 0.0)

    controller.tick()
    controller.tick()

    assert executor.asked == ["queue"]
    [submission] = controller.ledger.slots[0].attempts[0].submissions
    assert not isinstance(submission.sighting, Blind)
