"""A reader looks itself where the ledger is old, tells what it saw and why, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import NOW, a_claim, a_job, a_row, a_run, a_slot, job_dir, no_code, seen, token
from one_run import Cluster

from orchestrator.config import parse_config
from orchestrator.executors.base import JobState
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.history import append_event
from orchestrator.run.ledger import save_ledger
from orchestrator.run.rundir import RunDir
from orchestrator.screens import secondlook
from orchestrator.screens.explain import explain, explanation_lines
from orchestrator.screens.secondlook import AGAIN_S, LATE_LOOK_S
from orchestrator.screens.status import RunView, run_view
from orchestrator.screens.views import plain_lines

CONTROLLER = "process 7 on login1"
TRACEBACK = "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device: 'n'\n"
#: On Slurm, whose queue is asked every 30 s.
DUE_S = 40.0


class Place:
    """A run whose ledger says that a job trains, and whose job has died since. `left`: bytes on its full disk."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("orchestrator.run.pick.make_executor", lambda *_, **__: self.cluster)
        monkeypatch.setattr("orchestrator.screens.status.keeper", lambda *_: self.controller)
        monkeypatch.setattr(secondlook, "left_on_full_disk", lambda _: self.left)
        self.cluster = Cluster(now=lambda: NOW)
        self.controller: str | None = CONTROLLER
        self.left: int | None = None
        self.run_dir = RunDir(path / "runs" / "toy")
        prepare_folder(self.run_dir)
        config = {"run_name": "toy", "executor": "slurm", "command": ["true"], "slurm": {"time_limit": "4:00:00"}}
        (path / "sbatch").touch(0o755)
        environ = {"PATH": str(path)}
        run = begin(parse_config(config, "c.json"), path / "c.json", self.run_dir, environ, NOW, fix=no_code)
        at_work = {"claimed_by": token(), "started_at": NOW - 500, "heartbeat": 9, "heartbeat_changed_at": NOW - 50}
        self.ledger = a_run(a_slot().with_attempt(a_job(sighting=seen()), **at_work), run_id=run.run_id)
        attempt = self.run_dir.attempt(0, 0)
        attempt.mkdir(parents=True)
        (attempt / "claim").write_text(a_claim().model_dump_json())
        report = {"step": 500, "total": 9000, "checkpoint_step": 400, "steps_per_s": 9.8, "at": NOW - 60}
        (attempt / "progress.json").write_text(json.dumps(report))
        self.run_dir.job(token()).mkdir()
        (self.run_dir.job(token()) / "job-101.err").write_text(TRACEBACK)
        self.queue_says(JobState.ENDED, raw="FAILED")

    def queue_says(self, state: JobState, raw: str) -> None:
        folder = str(self.run_dir.job(token()))
        self.cluster.rows = {job_dir(token()): a_row(state=state, raw=raw, work_dir=folder)}

    def written(self, ago_s: float) -> Place:
        save_ledger(self.run_dir, self.ledger, NOW - ago_s)
        return self

    def view(self) -> RunView:
        return run_view(self.run_dir, NOW)

    def told(self) -> str:
        return "\n".join(plain_lines(self.view(), NOW))

    def explained(self) -> list[str]:
        return explanation_lines(explain(self.run_dir, 0, now=NOW), NOW)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_on_a_full_disk_a_dead_job_is_not_said_to_run(place: Place) -> None:
    place.left = 4096
    told = place.written(DUE_S).told()

    assert "running, job" not in told
    assert "steps/s" not in told
    assert "slot 0, waiting" in told
    assert "last job: no room (no space left on the disk)" in told
    assert f"the disk is full (4,096 bytes free in {place.run_dir.path}): since " in told
    assert "Free some space, and it goes on by itself" in told


def test_explain_tells_what_is_in_no_history_yet_and_contradicts_nothing(place: Place) -> None:
    place.left = 0
    lines = place.written(DUE_S).explained()

    assert "slot 0 is waiting" in lines[0]
    assert lines[1] == "  next: a job is submitted when there is room on the disk"
    assert "no new job now: the disk is full" in lines[2]
    assert any("the disk is full (0 bytes free" in line for line in lines)
    assert lines[-1].endswith(
        "job 101 ended: no room (no space left on the disk) at step 500; 100 steps after its last save are done again "
        "(not written down yet)"
    )


def test_what_found_room_in_the_history_is_told_once(place: Place) -> None:
    place.left = 0
    end = {"slot": 0, "attempt": 0, "job_id": "101", "verdict": "no room", "cause": "no space left on the disk"}
    append_event(place.written(DUE_S).run_dir, 0, "ended", NOW - 20, **end)

    assert sum("ended: no room" in line for line in place.explained()) == 1


def test_a_controller_that_writes_nothing_though_it_could_is_doubted(place: Place) -> None:
    told = place.written(LATE_LOOK_S + 1).told()

    assert "the controller has written nothing: it hangs, or it may not write (a quota?)" in told
    assert "slot 0, waiting" in told


@pytest.mark.parametrize(
    ("ago_s", "controller", "left"),
    [
        (DUE_S, CONTROLLER, None),
        (LATE_LOOK_S, CONTROLLER, None),
        (DUE_S - 10, CONTROLLER, 0),
        (9 * LATE_LOOK_S, None, None),
    ],
    ids=["new", "nearly late", "full, and nothing is due", "nobody looks after it"],
)
def test_otherwise_the_ledger_is_believed_and_nobody_asks_the_queue(
    place: Place, ago_s: float, controller: str | None, left: int | None
) -> None:
    place.controller, place.left = controller, left
    assert place.written(ago_s).view().second_look is None
    assert place.view().slots[0].state == "running"
    assert place.cluster.asked == []


def test_on_a_full_disk_a_run_without_a_controller_is_looked_at_too(place: Place) -> None:
    place.controller, place.left = None, 0
    told = place.written(DUE_S).told()
    assert "slot 0, waiting" in told
    assert "goes on by itself" not in told


def test_who_shows_it_again_and_again_asks_the_queue_as_often_as_a_controller(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [1000.0]
    monkeypatch.setattr("orchestrator.screens.secondlook.monotonic", lambda: at[0])
    place.left = 0
    place.written(DUE_S)
    for at[0] in (1000.0, 1002.0, 1000.0 + AGAIN_S - 1, 1000.0 + AGAIN_S):
        assert place.view().slots[0].state == "waiting"
    assert place.cluster.asked.count("queue") == 2


def test_a_queue_that_is_not_seen_is_said_and_proves_nothing(place: Place) -> None:
    place.left, place.cluster.error = 0, "squeue did not answer within 10 s"
    told = place.written(DUE_S).told()
    assert "The queue could not be seen: squeue did not answer within 10 s" in told
    assert "slot 0, blind" in told


def test_it_writes_nothing(place: Place) -> None:
    place.left = 0
    place.written(DUE_S)
    before = {path: path.read_bytes() for path in place.run_dir.path.rglob("*") if path.is_file()}
    place.view()
    place.explained()
    assert {path: path.read_bytes() for path in place.run_dir.path.rglob("*") if path.is_file()} == before
