"""What slurmd is to a Slurm job: the parent of one local job. It enforces the walltime and says how it ended.

Started by `orchestrator.executors.local` as ``python -X utf8 -P -S -m orchestrator.executors.supervisor`` in the job
folder, in a session of its own, so that it survives the controller. It keeps `local.json` there. Standard library only.

As Slurm does, it sends USR2 to the batch process at end - lead, TERM to every process of the job at the walltime or on
a cancel, and KILL after a grace. It is asked by SIGUSR2 (wake the job) or SIGTERM (cancel).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from anchorleg.files import make_folder, read_json, write_json
from orchestrator.processes import myself

#: Slurm's default KillWait: how long after TERM a job is killed.
KILL_WAIT_S = 30.0
POLL_S = 0.1


class Supervisor:
    """One local job, from its start to its record of the end."""

    def __init__(self, job_dir: Path, limit_s: float, lead_s: float) -> None:
        self.job_dir = job_dir
        self.started_at = time.time()
        # In a Slurm job for several slots, that job's end.
        self.ends_at = float(os.environ.get("ANCHORLEG_END_TIME") or self.started_at + limit_s)
        self.job_id = os.environ.get("ANCHORLEG_JOB_ID") or str(os.getpid())
        self.lead_s = lead_s
        self.wake_asked = False
        self.cancel_asked = False
        self.announced = False
        self.term_at: float | None = None
        self.how = ""

    def write(self, raw_state: str, code: int | None = None) -> None:
        """`local.json`: the job as a scheduler would show it."""
        record: dict[str, Any] = {
            "supervisor": asdict(myself()),
            "folder": str(self.job_dir),
            "raw_state": raw_state,
            "node": socket.gethostname(),
            "started_at": self.started_at,
            "ends_at": self.ends_at,
            "exit_code": code,
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        }
        if self.job_dir.parent.parent.is_dir():  # else the run is gone, or was moved
            make_folder(self.job_dir, 0o700)
        write_json(self.job_dir / "local.json", record)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Remember what was asked."""
        if number == signal.SIGUSR2:
            self.wake_asked = True
        else:
            self.cancel_asked = True

    def look(self, batch: subprocess.Popen[bytes]) -> None:
        """Once around the loop: pass on what is due."""
        now = time.time()
        if not self.announced and now >= self.ends_at - self.lead_s:
            self.announced = self.wake_asked = True
        if not (self.job_dir / "local.json").exists():  # somebody removed it: nobody would find this job
            with contextlib.suppress(OSError):
                self.write("RUNNING")
        if self.wake_asked:
            self.wake_asked = False
            batch.send_signal(signal.SIGUSR2)
        if self.term_at is None and (self.cancel_asked or now >= self.ends_at):
            self.how = "CANCELLED" if self.cancel_asked else "TIMEOUT"
            self.term_at = now
            _signal_group(batch.pid, signal.SIGTERM)
        elif self.term_at is not None and now >= self.term_at + KILL_WAIT_S:
            _signal_group(batch.pid, signal.SIGKILL)

    def run(self) -> None:
        """Start `job.sh`, watch it, record its end."""
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.on_signal)
        env = {**os.environ, "ANCHORLEG_JOB_ID": self.job_id, "ANCHORLEG_END_TIME": str(int(self.ends_at))}
        env.pop("PYTHONPATH", None)  # it leads to our own code; the script says what leads to the job's
        name = f"job-{self.job_id}"
        with open(self.job_dir / f"{name}.out", "ab") as out, open(self.job_dir / f"{name}.err", "ab") as err:
            self.write("RUNNING")  # before anything runs: where there is no room for it, nothing has run
            try:
                batch = subprocess.Popen(
                    ["bash", "job.sh"],
                    cwd=self.job_dir,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:
                err.write(f"bash could not be started: {error.strerror}\n".encode())
                self.write("FAILED", 126)  # as a shell says of a command that cannot be run
                return
        code: int | None = None
        while code is None:
            self.look(batch)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = batch.wait(POLL_S)
        _signal_group(batch.pid, signal.SIGKILL)
        self.write(self.how or ("COMPLETED" if code == 0 else "FAILED"), code)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


if __name__ == "__main__":
    spec = read_json(Path.cwd() / "job.json")
    Supervisor(Path.cwd(), spec["limit_s"], spec["lead_s"]).run()
