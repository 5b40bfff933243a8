"""Several slots in one job: which pack a member goes to, what it looks like from outside, how it is ended."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, token

from orchestrator.disk import LOCAL_DISK
from orchestrator.executors.base import JobRequest, JobRow, JobState, Poll, SubmitOutcome, SubmitRefused, Submitted
from orchestrator.executors.packed import PackedExecutor
from orchestrator.packing import Pack

LIMIT_S = 3600.0


class Slurm:
    """What a pack is a job of."""

    submit_grace_s = 105.0

    def __init__(self) -> None:
        self.jobs: dict[str, JobRow] = {}
        self.cancelled: list[str] = []
        self.refuses = False
        self.place = 0

    def submit(self, request: JobRequest) -> SubmitOutcome:
        if self.refuses:
            return SubmitRefused(kind="quota", words="no")
        job_id = str(7 + len(self.jobs))
        self.jobs[job_id] = JobRow(
            state=JobState.PENDING, raw_state="PENDING", job_id=job_id, work_dir=request.job_dir, partition="gpu"
        )
        return Submitted(job_id=job_id, place=self.place)

    def shows(self, job_id: str, state: JobState, raw: str, **more: Any) -> None:
        self.jobs[job_id] = self.jobs[job_id].model_copy(update={"state": state, "raw_state": raw, **more})

    def poll(self) -> Poll:
        return Poll(at=NOW, rows=tuple(self.jobs.values()), others=1)

    def cancel(self, job_ids: list[str], *, waiting: bool = False) -> None:
        del waiting
        self.cancelled += job_ids

    def is_free(self, *_: object) -> bool:
        return False

    def forget_after_s(self) -> float:
        return 300.0


class Packs:
    def __init__(self, jobs_dir: Path) -> None:
        self.slurm = Slurm()
        self.executor = PackedExecutor(self.slurm, jobs_dir, 2, LIMIT_S)  # type: ignore[arg-type]
        self.jobs_dir = jobs_dir
        self.answers: list[tuple[str, int]] = []

    def submit(self, slot: int) -> str:
        folder = self.jobs_dir / token(slot)
        folder.mkdir(parents=True)
        (folder / "job.sh").write_text(f"cd {folder}\nexec python3 -m orchestrator.shim\n")
        outcome = self.executor.submit(JobRequest(job_dir=str(folder), script=str(folder / "job.sh"), slot=slot))
        assert isinstance(outcome, Submitted), outcome
        self.answers.append((outcome.job_id, outcome.place))
        return outcome.job_id

    def begins(self, slot: int, raw: str = "RUNNING", code: int | None = None) -> None:
        record = {"raw_state": raw, "started_at": NOW, "exit_code": code}
        (self.jobs_dir / token(slot) / "local.json").write_text(json.dumps(record))

    def states(self) -> dict[str, tuple[str, str]]:
        return {row.job_id: (str(row.state), row.raw_state) for row in self.executor.poll().rows}


@pytest.fixture
def packs(tmp_path: Path) -> Packs:
    return Packs(tmp_path / "jobs")


def test_two_go_into_each_job_which_runs_the_pack(packs: Packs) -> None:
    assert [packs.submit(slot) for slot in range(3)] == ["7.0", "7.1", "8.0"]
    folder = Path(packs.slurm.jobs["7"].work_dir)
    assert (folder / "pack.sh").read_text() == f"cd {folder}\nexec python3 -m orchestrator.packing\n"
    assert json.loads((folder / "members/1").read_text()) == {"job_dir": str(packs.jobs_dir / token(1))}
    rows = packs.executor.poll().rows
    assert [(row.job_id, Path(row.work_dir).name, row.partition) for row in rows] == [
        ("7.0", token(0), "gpu"), ("7.1", token(1), "gpu"), ("8.0", token(2), "gpu"),
    ]  # fmt: skip
    assert packs.executor.poll().others == 2, "another job of the user takes the room of two slots"


def test_a_place_that_is_free_again_is_taken_while_enough_time_is_left(packs: Packs) -> None:
    for slot in range(2):
        packs.submit(slot)
        packs.begins(slot)
    packs.slurm.shows("7", JobState.RUNNING, "RUNNING", ends_at=time.time() + LIMIT_S)
    packs.begins(0, "COMPLETED", 0)
    assert packs.states() == {"7.0": ("ended", "COMPLETED"), "7.1": ("running", "RUNNING")}
    assert packs.submit(2) == "7.2"
    packs.begins(2, "FAILED", 1)
    packs.slurm.shows("7", JobState.RUNNING, "RUNNING", ends_at=time.time() + 0.2 * LIMIT_S)
    packs.executor.poll()
    assert packs.submit(3) == "8.0"
    (Path(packs.slurm.jobs["8"].work_dir) / "closed").touch()
    packs.executor.poll()
    assert packs.submit(4) == "9.0"
    assert not (Path(packs.slurm.jobs["8"].work_dir) / "members/1").exists()


def test_a_pack_that_closes_while_a_slot_joins_it_is_left_again(packs: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    packs.submit(0)
    packs.begins(0)
    packs.executor.poll()
    create = LOCAL_DISK.create

    def create_too_late(path: Path, data: bytes) -> bool:
        (Path(packs.slurm.jobs["7"].work_dir) / "closed").touch()
        return create(path, data)

    monkeypatch.setattr(LOCAL_DISK, "create", create_too_late)
    assert packs.submit(1) == "8.0"
    assert not (Path(packs.slurm.jobs["7"].work_dir) / "members/1").exists()


@pytest.mark.parametrize(
    ("pack", "member", "shown"),
    [
        ("NODE_FAIL", "RUNNING", "NODE_FAIL"),
        ("TIMEOUT", "CANCELLED", "TIMEOUT"),
        ("CANCELLED by 0", "CANCELLED", "CANCELLED by 0"),
        ("COMPLETED", "RUNNING", "NODE_FAIL"),
        ("COMPLETED", "FAILED", "FAILED"),
        ("COMPLETED", None, "PREEMPTED"),
        ("NODE_FAIL", None, "NODE_FAIL"),
    ],
)
def test_a_pack_that_has_ended_has_ended_its_members(packs: Packs, pack: str, member: str | None, shown: str) -> None:
    packs.submit(0)
    if member is not None:
        packs.begins(0, member)
    packs.slurm.shows("7", JobState.ENDED, pack)
    assert packs.states() == {"7.0": ("ended", shown)}


def test_a_cancel_ends_the_one_that_is_meant_and_the_job_once_nobody_waits_in_it(packs: Packs) -> None:
    for slot in range(2):
        packs.submit(slot)
    packs.executor.poll()
    packs.executor.cancel(["7.0"])
    assert (packs.slurm.cancelled, packs.states()["7.0"], packs.states()["7.1"]) == (
        [], ("ended", "CANCELLED"), ("pending", "PENDING"),
    )  # fmt: skip
    packs.begins(1)
    packs.executor.cancel(["7.1"], waiting=True)
    assert packs.slurm.cancelled == [], "it has begun"
    (packs.jobs_dir / token(1) / "local.json").unlink()
    packs.executor.cancel(["7.1", "99"])
    assert sorted(packs.slurm.cancelled) == ["7", "99"]


def test_who_leaves_a_waiting_pack_for_another_place_does_not_come_back(packs: Packs) -> None:
    packs.slurm.place = 1
    for slot in range(2):
        packs.submit(slot)
    assert packs.answers == [("7.0", 1), ("7.1", 1)]
    packs.executor.poll()
    packs.executor.cancel(["7.0"], waiting=True)
    packs.executor.poll()
    packs.slurm.place = 0
    packs.submit(2)
    assert packs.answers[-1] == ("8.0", 0)
    assert packs.states()["7.1"] == ("pending", "PENDING")


def test_a_pack_that_is_refused_leaves_nothing(packs: Packs) -> None:
    packs.slurm.refuses = True
    with pytest.raises(AssertionError):
        packs.submit(0)
    assert [path.name for path in packs.jobs_dir.iterdir()] == [token(0)]


def test_members_share_cores_and_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, str]] = []

    class Child:
        pid = 0

        def __init__(self, _words: list[str], *, cwd: Path, env: dict[str, str], **_: object) -> None:
            started.append((env["ANCHORLEG_JOB_ID"], env["CUDA_VISIBLE_DEVICES"]))

        def poll(self) -> None:
            return None

    monkeypatch.setattr("orchestrator.packing.subprocess.Popen", Child)
    shares: list[list[int]] = []
    monkeypatch.setattr("orchestrator.packing.os.sched_setaffinity", lambda _pid, cores: shares.append(cores))
    monkeypatch.setattr("orchestrator.packing.os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    (tmp_path / "members").mkdir()
    for number in range(3):
        (tmp_path / f"member{number}").mkdir()
        (tmp_path / "members" / str(number)).write_text(json.dumps({"job_dir": str(tmp_path / f"member{number}")}))
    environ = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1,2"}
    pack = Pack(tmp_path, {"places": 2, "limit_s": LIMIT_S}, environ)

    pack.look()

    assert (started, shares) == ([("7.0", "0,2"), ("7.1", "1")], [[0, 2], [1, 3]])
    assert (pack.waiting(), pack.is_over) == ([2], False)
