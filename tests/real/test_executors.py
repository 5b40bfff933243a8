"""What the controller may expect of every executor: the same tests on this machine's processes and on a real Slurm."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from daemons import wait_for

from orchestrator.executors.base import Executor, JobRequest, JobRow, JobState, Submitted
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.slurm import SlurmExecutor

LIMIT_S = 1800
#: Slurm knows whole seconds, and starts its clock before the batch script's first line.
CLOCK_S = 3.0

#: A batch process that counts its wake-ups, and has a child that dies of one. While there is a file `patience`, it does
#: not listen yet, and leaves a trace of what came too early.
LISTENER = """\
trap '' USR2
python3 -c '
import os, signal, time
signal.signal(signal.SIGUSR2, signal.SIG_DFL)
open("child.new", "w").write(str(os.getpid()))
os.rename("child.new", "child")
time.sleep(1801)
' &
[ -e patience ] && trap 'touch early' USR2
touch up
while [ -e patience ]; do sleep 0.05; done
trap 'echo woken >> wakes' USR2
trap 'echo TERM >> terms; exit 9' TERM
touch listening
while true; do sleep 0.05; done
"""


@dataclass
class Place:
    """An executor and what is needed to make another one for the same jobs."""

    kind: str
    jobs_dir: Path
    env: dict[str, str]

    def executor(self) -> Executor:
        """A new one: it remembers nothing."""
        if self.kind == "local":
            return LocalExecutor(self.jobs_dir, self.env)
        return SlurmExecutor(self.jobs_dir, self.env)

    def job(self, name: str, body: str, *, limit_s: int = LIMIT_S, lead_s: int = 10) -> JobRequest:
        """A job folder, as `orchestrator.run.submission` would make it."""
        folder = self.jobs_dir / name
        folder.mkdir(parents=True)
        lines = [
            "#!/bin/bash", f"#SBATCH --time={max(1, limit_s // 60)}", "#SBATCH --mem=50M", "#SBATCH --no-requeue", body,
        ]  # fmt: skip
        (folder / "job.sh").write_text("\n".join(lines))
        (folder / "job.json").write_text(json.dumps({"limit_s": limit_s, "lead_s": lead_s}))
        return JobRequest(job_dir=str(folder), script=f"{folder}/job.sh")

    def submit(self, name: str, body: str, **more: int) -> str:
        """Submit one and return its id."""
        outcome = self.executor().submit(self.job(name, body, **more))
        assert isinstance(outcome, Submitted), outcome
        return outcome.job_id

    def row(self, name: str) -> JobRow | None:
        """What a new executor sees of a job."""
        poll = self.executor().poll()
        assert poll.error is None
        rows = [row for row in poll.rows if row.work_dir == str(self.jobs_dir / name)]
        assert len(rows) <= 1
        return rows[0] if rows else None

    def wait_for_state(self, name: str, state: JobState) -> JobRow:
        found: list[JobRow] = []

        def there() -> bool:
            row = self.row(name)
            found[:] = [row] if row is not None and row.state is state else []
            return bool(found)

        wait_for(there, f"{name} to be {state}")
        return found[0]

    def wait_for_file(self, name: str, file: str) -> Path:
        path = self.jobs_dir / name / file
        wait_for(path.exists, f"{name}/{file}")
        return path


@pytest.fixture(params=["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Both executors, one after the other; nothing of theirs is left behind."""
    env = dict(os.environ)
    if request.param == "slurm":
        env = request.getfixturevalue("slurm").env()
    place = Place(request.param, tmp_path / "run" / "jobs", env)
    place.jobs_dir.mkdir(parents=True)
    yield place
    executor = place.executor()
    executor.cancel([row.job_id for row in executor.poll().rows if row.state is not JobState.ENDED])
    wait_for(lambda: all(row.state is JobState.ENDED for row in executor.poll().rows), "the end of all jobs")


def test_a_job_is_seen_running_and_then_ended(place: Place) -> None:
    before = time.time()
    job_id = place.submit("one", "touch up; while [ ! -e go ]; do sleep 0.05; done")

    place.wait_for_file("one", "up")
    row = place.wait_for_state("one", JobState.RUNNING)
    assert row.job_id == job_id
    assert row.node
    assert row.started_at is not None
    assert before - CLOCK_S <= row.started_at <= time.time() + CLOCK_S
    assert row.ends_at == pytest.approx(row.started_at + LIMIT_S, abs=CLOCK_S)

    (place.jobs_dir / "one" / "go").touch()
    assert place.wait_for_state("one", JobState.ENDED).raw_state == "COMPLETED"


@pytest.mark.parametrize(
    "name", ["jobs", "My%20notes/acc95%above %j%%u", 'it\'s "$HOME" `x`;#!', os.fsdecode(b"latin \xfc"), "two\nlines"]
)
def test_the_output_of_a_job_is_in_its_folder(place: Place, tmp_path: Path, name: str) -> None:
    place.jobs_dir = tmp_path / name
    place.submit("one", "pwd; echo oh >&2")

    place.wait_for_state("one", JobState.ENDED)
    folder = place.jobs_dir / "one"
    assert [path.read_bytes() for path in folder.glob("job-*.out")] == [os.fsencode(f"{folder}\n")]
    assert [path.read_text() for path in folder.glob("job-*.err")] == ["oh\n"]


def test_a_wake_up_reaches_the_batch_process_alone(place: Place) -> None:
    job_id = place.submit("one", LISTENER)
    place.wait_for_file("one", "listening")
    child = int(place.wait_for_file("one", "child").read_text())

    for words in ("woken\n", "woken\nwoken\n"):
        assert place.executor().wake([job_id]) is None
        wakes = place.wait_for_file("one", "wakes")
        wait_for(partial(told, wakes, words), "the wake-up")

    assert is_running(child)
    assert place.wait_for_state("one", JobState.RUNNING).job_id == job_id


def test_a_wake_up_before_the_program_listens_does_not_kill_the_job(place: Place) -> None:
    request = place.job("one", LISTENER)
    patience = place.jobs_dir / "one" / "patience"
    patience.touch()
    outcome = place.executor().submit(request)
    assert isinstance(outcome, Submitted)
    place.wait_for_file("one", "up")
    child = int(place.wait_for_file("one", "child").read_text())

    assert place.executor().wake([outcome.job_id]) is None

    place.wait_for_file("one", "early")
    patience.unlink()
    place.wait_for_file("one", "listening")
    assert is_running(child)
    assert place.wait_for_state("one", JobState.RUNNING).job_id == outcome.job_id


def test_a_cancel_sends_term_to_every_process_and_the_job_ends(place: Place) -> None:
    job_id = place.submit("one", LISTENER)
    place.wait_for_file("one", "listening")
    child = int(place.wait_for_file("one", "child").read_text())

    assert place.executor().cancel([job_id]) is None

    assert place.wait_for_state("one", JobState.ENDED).raw_state == "CANCELLED"
    assert (place.jobs_dir / "one" / "terms").read_text() == "TERM\n"
    wait_for(lambda: not is_running(child), "the end of the job's child")


def test_a_poll_lists_the_jobs_of_its_own_folder(place: Place, tmp_path: Path) -> None:
    place.submit("one", "sleep 1802")
    other = Place(place.kind, tmp_path / "run-2" / "jobs", place.env)
    other.jobs_dir.mkdir(parents=True)
    theirs = other.submit("two", "sleep 1802")
    place.wait_for_state("one", JobState.RUNNING)
    other.wait_for_state("two", JobState.RUNNING)

    poll = place.executor().poll()

    assert [row.work_dir for row in poll.rows] == [str(place.jobs_dir / "one")]
    assert poll.others == (1 if place.kind == "slurm" else 0)
    other.executor().cancel([theirs])
    other.wait_for_state("two", JobState.ENDED)


def test_a_history_answers_or_says_that_there_is_none(place: Place) -> None:
    begun_at = time.time()
    place.submit("one", "exit 3")
    place.wait_for_state("one", JobState.ENDED)

    history = place.executor().accounting(begun_at - 5)

    assert history.status == ("ok" if place.kind == "local" else "disabled")
    if history.status == "ok":
        assert [(row.state, row.exit_code) for row in history.rows] == [(JobState.ENDED, 3)]
    assert place.executor().forget_after_s() == (120 if place.kind == "local" else 300)


@pytest.mark.long  # the local executor's patience is Slurm's default: 30 s
def test_a_job_that_ignores_everything_is_killed_in_the_end(place: Place) -> None:
    job_id = place.submit("one", "trap '' TERM USR2; touch up; while true; do sleep 0.05; done")
    place.wait_for_file("one", "up")

    place.executor().cancel([job_id])

    assert place.wait_for_state("one", JobState.ENDED).raw_state == "CANCELLED"


@pytest.mark.long
@pytest.mark.parametrize("place", ["local"], indirect=True)  # a minute is Slurm's shortest: see test_walltime.py
def test_the_walltime_is_announced_to_the_batch_process_and_then_enforced(place: Place) -> None:
    place.submit("one", LISTENER, limit_s=16, lead_s=4)

    place.wait_for_file("one", "wakes")
    row = place.wait_for_state("one", JobState.ENDED)

    assert row.raw_state == "TIMEOUT"
    assert (place.jobs_dir / "one" / "wakes").read_text() == "woken\n"
    assert (place.jobs_dir / "one" / "terms").read_text() == "TERM\n"


def told(path: Path, words: str) -> bool:
    return path.read_text() == words


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False
