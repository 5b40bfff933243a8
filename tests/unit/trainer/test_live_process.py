"""The end of the process beside the training, with programs that only stand in for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest
from daemons import PATIENCE_S

from anchorleg.job import Job
from anchorleg.temporary import HeldFolder
from trainer.wandb import process, program
from trainer.wandb.destination import Destination
from trainer.wandb.process import LiveProcess
from trainer.wandb.request import Patience, UploadRequest


@pytest.fixture
def request_of_a_job(tmp_path):
    (tmp_path / "scratch").mkdir()
    job = Job(tmp_path, 0, 0, run_id="mt10-0123abcd")
    return UploadRequest.of(
        job, tmp_path / "scratch", Destination(), {}, Patience(retry_s=600.0, longest_retry_s=600.0)
    )


class Running(LiveProcess):
    """One that runs `code`, and remembers whose children were killed."""

    def __init__(self, request, code):
        self.ended_parents = []
        super().__init__(
            request,
            {},
            lambda _: None,
            start=lambda *_: subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ),
            end_children=self.ended_parents.append,
        )


def test_a_process_that_has_ended_has_no_children_whatever_has_its_number_now(request_of_a_job):
    process = Running(request_of_a_job, "")
    process._process.wait(PATIENCE_S)
    process.end(None)
    assert process.ended_parents == []


def test_a_process_that_has_not_ended_goes_with_its_children(request_of_a_job):
    process = Running(request_of_a_job, "import time; time.sleep(600)")
    process.end(0.0)  # no time is left
    assert process.ended_parents == [process.pid]
    assert process._process.poll() is not None
    assert request_of_a_job.folder.is_dir()  # it is whose who made it


def test_an_end_between_two_connections_is_no_complete_one(request_of_a_job, tmp_path):
    """Of a connection that was left to begin another one the learner was told nothing: its exit code must."""
    path = request_of_a_job.write()
    code = (
        "import os, sys; from trainer.wandb import program; program.end_with = lambda learner: None; "
        f"sys.exit(program.main([{str(path)!r}, '1', 'live']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"", capture_output=True, timeout=PATIENCE_S, check=False, cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    assert b"not everything was sent" in done.stderr
    assert program.pause_s(request_of_a_job.patience, 1) == 600.0


def test_a_training_that_no_job_clears_up_after_removes_what_a_killed_one_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    left = HeldFolder("anchorleg-wandb", tmp_path / "tmp")
    os.close(left._handle)  # as the kernel does where its process is killed
    folders, said = [], []

    def refused(request, *_):
        folders.append(request.folder)
        assert request.folder.is_dir()
        raise OSError("no process can be started")

    monkeypatch.setattr(process, "LiveProcess", refused)
    job = Job.standalone(tmp_path / "run")
    with process.beside(job, {}, {"WANDB_MODE": "online"}, said.append):
        assert len(said) == 1
        assert "no process can be started" in said[0]
    assert len(folders) == 1
    assert list((tmp_path / "tmp").iterdir()) == []
