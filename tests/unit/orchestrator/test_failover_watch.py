from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, RUN_ID

from anchorleg.files import to_json
from orchestrator import failover
from orchestrator.decisions.models import Attempt, Ledger, Slot, Submission, SubmissionState, Verdict
from orchestrator.errors import LeaseHeld, StorageError
from orchestrator.failover import HOLDER, SILENT_S, Watch, tick_environment, tick_if_alone
from orchestrator.hosts.ticking import without_waits_for_room
from orchestrator.processes import myself
from orchestrator.run.lease import Owner, living_owner
from orchestrator.run.ledger import save_ledger
from orchestrator.run.rundir import RunDir


class World:
    """A run whose owner is elsewhere, a job that watches it, and a stand-in for the tick that notes how it is run."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = RunDir(folder)
        self.run_dir.lease.mkdir()
        self.clock = 1000.0
        self.watch = Watch(folder, lambda: self.clock)
        self.said: list[str] = []
        self.python = str(self.interpreter('echo "$@" >> ticks.txt; env >> ticks.txt'))

    def interpreter(self, line: str, name: str = "python") -> Path:
        path = self.run_dir.path / name
        path.write_text(f"#!/bin/sh\ncd {self.run_dir.path}\n{line}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def own(self, epoch: int, command: str = "start") -> None:
        process = replace(myself(), host="login2", boot_id="its own")
        owner = Owner(epoch=epoch, process=process, since=NOW, command=command)
        (self.run_dir.lease / str(epoch)).write_bytes(to_json(owner.model_dump(mode="json")))

    def beats(self, beat: int, epoch: int = 0) -> None:
        save_ledger(self.run_dir, Ledger(run_id=RUN_ID, epoch=epoch, beat=beat), NOW)

    def look_for(self, seconds: float) -> None:
        """The job's heartbeats over so long."""
        for _ in range(int(seconds / 30)):
            self.clock += 30
            self.watch.look()

    def ends(self, *pythons: str, **more: Any) -> str:
        """The job ends. Returns what its tick was run with; empty: there was none."""
        environ = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"}
        tick_if_alone(self.watch, pythons or (self.python,), environ, self.said.append, **more)
        ticks = self.run_dir.path / "ticks.txt"
        return ticks.read_text() if ticks.exists() else ""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.own(0)
    world.beats(1)
    world.watch.look()
    return world


class TestWhetherAnybodyIsThere:
    def test_an_owner_that_was_silent_for_five_minutes_is_replaced_for_a_tick(self, world: World) -> None:
        world.look_for(SILENT_S)
        ran = world.ends()
        assert f"-m orchestrator tick --failover --run-dir {world.run_dir.path}" in ran
        assert "SLURM_JOB_ID" not in ran
        assert living_owner(world.run_dir, monotonic=lambda: world.clock) is None  # the tick knew what the job had seen

    def test_one_that_wrote_a_moment_ago_is_left_alone(self, world: World) -> None:
        world.look_for(SILENT_S - 30)
        world.beats(2)
        world.look_for(SILENT_S - 30)
        assert world.ends() == ""
        assert world.said == []

    def test_where_jobs_ran_failover_ticks_before_nobody_is_waited_for(self, world: World) -> None:
        world.own(1, HOLDER)
        world.beats(1, epoch=1)
        assert world.ends() != ""

    @pytest.mark.parametrize("of", ["lease", "1"])
    def test_an_owner_that_cannot_be_read_for_a_moment_is_read_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch, of: str
    ) -> None:
        """After another job's tick: the run's last job must not take nobody for somebody."""
        names, read, refused = os.listdir, Path.read_bytes, list[Path]()

        def passes(path: Path) -> None:
            if path.name == of and len(refused) < 30:
                refused.append(path)
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

        world.own(1, HOLDER)
        world.beats(1, epoch=1)
        monkeypatch.setattr(Path, "read_bytes", lambda path: (passes(path), read(path))[1])
        monkeypatch.setattr(failover.os, "listdir", lambda path: (passes(Path(path)), names(path))[1])
        assert "tick --failover" in world.ends(sleep=lambda _: None)
        assert len(refused) == 30


class TestTheTick:
    def test_an_interpreter_that_cannot_run_it_is_replaced_by_the_jobs_own(self, world: World) -> None:
        world.look_for(SILENT_S)
        bare = world.interpreter("echo No module named pydantic >&2; exit 1", "other")
        assert "tick --failover" in world.ends(str(bare), world.python)

    def test_a_file_that_could_not_be_used_is_a_reason_to_try_again(self, world: World) -> None:
        world.look_for(SILENT_S)
        fails = f"[ $(wc -l < ticks.txt) -gt 2 ] || exit {StorageError.exit_code}"
        world.python = str(world.interpreter(f"echo x >> ticks.txt; {fails}"))
        assert world.ends(sleep=lambda _: None) == "x\nx\nx\n"
        assert world.said[-1] == "the tick after this job is done; see controller.log"

    def test_another_jobs_tick_is_waited_for(self, world: World) -> None:
        world.look_for(SILENT_S)
        record = json.dumps({"command": HOLDER})
        refuse = f"echo '{record}' > lease/1; exit {LeaseHeld.exit_code}"
        world.python = str(world.interpreter(f"echo x >> ticks.txt; [ $(wc -l < ticks.txt) -gt 2 ] || {{ {refuse}; }}"))
        assert world.ends(sleep=lambda _: None) == "x\nx\nx\n"

    def test_a_controller_that_has_come_back_is_not_waited_for(self, world: World) -> None:
        world.look_for(SILENT_S)
        world.python = str(world.interpreter(f"echo x >> ticks.txt; exit {LeaseHeld.exit_code}"))
        assert world.ends() == "x\n"
        assert world.said[-1] == "a controller is running again"

    def test_one_that_hangs_is_ended(self, world: World) -> None:
        world.look_for(SILENT_S)
        world.python = str(world.interpreter("exec sleep 30"))
        world.ends(timeout_s=0.2)
        assert "took longer" in world.said[-1]


def test_the_tick_sees_nothing_of_the_job_it_runs_in() -> None:
    job = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_JOB_ID": "7",
        "SBATCH_ACCOUNT": "x",
        "ANCHORLEG_X": "",
    }
    assert tick_environment(job) == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}


@pytest.mark.parametrize(
    ("attempt", "waits"),
    [
        ({"submissions": [SubmissionState.NOT_SUBMITTED]}, False),
        ({"submissions": [SubmissionState.NOT_SUBMITTED], "verdict": Verdict.CRASHED}, True),
        ({"submissions": [SubmissionState.SUBMITTED]}, True),
        ({"submissions": []}, True),
    ],
)
def test_only_a_wait_for_room_ends_with_the_job_that_looks(attempt: dict[str, Any], waits: bool) -> None:
    states = attempt.pop("submissions")
    submissions = tuple(Submission(token=f"s0-a0-0000000{n}", intent_at=NOW, state=s) for n, s in enumerate(states))
    slot = Slot(index=0, not_before=NOW + 60, attempts=(Attempt(number=0, submissions=submissions, **attempt),))
    after = without_waits_for_room(Ledger(run_id=RUN_ID, epoch=0, slots=(slot,))).slots[0]
    assert (after.not_before > 0) == waits
