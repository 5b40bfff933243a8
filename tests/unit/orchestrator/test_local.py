"""The executor of this machine: nothing runs that is not written down."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import pytest

from orchestrator.executors.base import JobRequest, SubmitRefused
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.supervisor import Supervisor


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


def test_why_a_supervisor_ended_at_once_is_in_the_refusal(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "s0-a0-00000000"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"limit_s": 60}))
    executor = LocalExecutor(tmp_path / "jobs", {**os.environ})
    outcome = executor.submit(JobRequest(job_dir=str(folder), script=f"{folder}/job.sh"))
    assert isinstance(outcome, SubmitRefused)
    assert outcome.words == "the supervisor ended at once: KeyError: 'lead_s'"
