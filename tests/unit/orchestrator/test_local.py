"""The executor of this machine: nothing runs that is not written down."""

from __future__ import annotations

import errno
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest
from daemons import PATIENCE_S

from orchestrator.executors.base import JobRequest, SubmitRefused
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.supervisor import Supervisor
from orchestrator.processes import myself


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that starts a process in ten seconds and more changes no outcome."""
    monkeypatch.setattr("orchestrator.executors.local.START_TIMEOUT_S", PATIENCE_S)


def test_nothing_runs_of_a_job_whose_record_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.sh").write_text("touch ran\n")
    supervisor, started = Supervisor(tmp_path, 60, 10), []

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(supervisor, "write", is_full)
    monkeypatch.setattr("subprocess.Popen", lambda *words, **_: started.append(words))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(OSError, match="No space left"):
        supervisor.run()
    assert started == []


@pytest.mark.usefixtures("patient")
def test_a_job_whose_end_is_written_is_on_no_gpu_any_more(tmp_path: Path) -> None:
    """Its place goes on by that record, and its supervisor sees the end a moment later."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho GPU $CUDA_VISIBLE_DEVICES >&2\nexit 1\n")
    python.chmod(0o755)
    jobs = tmp_path / "jobs"
    for slot in range(3):
        job_dir, attempt_dir = jobs / f"s{slot}-a0-00000000", tmp_path / "slots" / str(slot) / "attempts" / "0"
        job_dir.mkdir(parents=True)
        attempt_dir.mkdir(parents=True)
        (job_dir / "job.json").write_text(json.dumps({"run_dir": str(tmp_path), "slot": slot, "attempt": 0}))
        if slot < 2:
            record = {"supervisor": asdict(myself()), "raw_state": "RUNNING", "gpus": str(slot)}
            (job_dir / "local.json").write_text(json.dumps(record))
    (tmp_path / "slots" / "1" / "attempts" / "0" / "exit.json").write_text("{}")
    executor = LocalExecutor(jobs, {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"}, python=str(python))
    folder = jobs / "s2-a0-00000000"
    outcome = executor.submit(JobRequest(job_dir=str(folder), script=f"{folder}/job.sh", slot=2, gpus=1))
    assert isinstance(outcome, SubmitRefused)
    assert outcome.words == "the supervisor ended at once: GPU 1"
