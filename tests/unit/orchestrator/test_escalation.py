"""`relay.escalate`: after a job that ran out of memory or time the next one asks for more, up to a stated most."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from one_run import POLL_S, World

from orchestrator.decisions.models import Raised, SlotStatus
from orchestrator.executors.base import JobState, SubmitRefused
from orchestrator.run.ledger import read_events
from orchestrator.screens.explain import explain
from orchestrator.screens.reading import run_view

SLURM = {"mem": "2G", "time_limit": "0:10:00"}
MOST = {"mem": "4G", "time_limit": "0:15:00"}


class Jobs:
    """One slot's jobs, which end one after the other."""

    def __init__(self, path: Path, **relay: object) -> None:
        relay = {"escalate": MOST, "failure_budget": 9, "retry_delays_seconds": [0], **relay}
        self.world = World(path, slurm=SLURM, relay=relay)
        self.world.tick()

    def asked(self) -> list[str]:
        """What the newest job asks for: memory and walltime."""
        script = Path(self.world.cluster.requests[-1].script).read_text()
        return re.findall(r"^#SBATCH --(?:mem|time)=(\S+)", script, re.MULTILINE)

    def end(self, raw: str) -> None:
        """The newest job, and the next one is submitted."""
        newest = len(self.world.cluster.submitted) - 1
        self.world.job_shows(JobState.RUNNING, newest)
        self.world.job_claims(self.world.slot.attempts[-1].number)
        self.world.tick(after=POLL_S)
        self.world.job_shows(JobState.ENDED, newest, raw=raw)
        self.world.tick(after=POLL_S)
        self.world.tick(after=POLL_S)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def test_each_end_for_memory_or_time_raises_what_the_next_job_asks_for_up_to_the_most(jobs: Jobs) -> None:
    found = [jobs.asked()]
    for raw in ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "TIMEOUT", "OUT_OF_MEMORY", "TIMEOUT"):
        jobs.end(raw)
        found.append(jobs.asked())
    assert found == [
        ["2G", "0:10:00"], ["3G", "0:10:00"], ["4G", "0:10:00"], ["4G", "0:15:00"], ["4G", "0:15:00"], ["4G", "0:15:00"]
    ]  # fmt: skip
    events = read_events(jobs.world.run_dir)
    told = [event["why"] for event in events if event["kind"] == "raised"]
    assert [("3G" in why, "4G" in why, "0:15:00" in why) for why in told] == [
        (True, False, False), (False, True, False), (False, True, True)
    ]  # fmt: skip


def test_a_gpu_without_memory_twice_in_a_row_stops_the_slot_and_says_what_to_do(jobs: Jobs) -> None:
    for _ in range(2):
        assert jobs.world.slot.status is SlotStatus.ACTIVE
        folder = jobs.world.run_dir.job(jobs.world.cluster.submitted[-1])
        number = 100 + len(jobs.world.cluster.submitted)
        (folder / f"job-{number}.err").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
        jobs.end("FAILED")
    assert jobs.world.slot.status is SlotStatus.FAILED
    assert "slurm.gpu_type" in jobs.world.slot.why
    assert (jobs.world.slot.raised, len(jobs.world.cluster.submitted)) == (None, 2)


@pytest.mark.parametrize("raw", ["PREEMPTED", "NODE_FAIL", "CANCELLED by 0", "FAILED"])
def test_no_other_end_raises_anything(jobs: Jobs, raw: str) -> None:
    jobs.end(raw)
    assert jobs.world.slot.raised is None
    assert jobs.asked() == ["2G", "0:10:00"]


def test_nothing_is_raised_without_a_most(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, escalate={})
    for raw in ("OUT_OF_MEMORY", "TIMEOUT"):
        jobs.end(raw)
    assert (jobs.world.slot.raised, jobs.asked()) == (None, ["2G", "0:10:00"])


def test_what_the_scheduler_refuses_is_not_asked_for_again(jobs: Jobs) -> None:
    jobs.world.cluster.answers = [SubmitRefused(kind="permanent", words="too much")]
    jobs.end("OUT_OF_MEMORY")
    assert jobs.world.slot.status is SlotStatus.ACTIVE
    assert (jobs.world.slot.raised, jobs.asked()) == (None, ["2G", "0:10:00"])


def test_what_can_never_start_is_not_asked_for_again(jobs: Jobs) -> None:
    jobs.end("TIMEOUT")
    jobs.world.job_shows(JobState.PENDING, 1, reason="PartitionTimeLimit")
    for _ in range(4):
        jobs.world.tick(after=POLL_S)
    assert jobs.world.slot.raised is None


def test_screens_say_what_was_raised_and_how_to_keep_it(jobs: Jobs) -> None:
    jobs.end("OUT_OF_MEMORY")
    view = run_view(jobs.world.run_dir, events=True)
    assert jobs.world.slot.raised == Raised(mem_mb=3072)
    assert "slurm.mem" in view.slots[0].raised
    assert view.slots[0].raised in explain(view, 0, jobs.world.time).facts
