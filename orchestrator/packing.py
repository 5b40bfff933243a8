"""Inside one Slurm job: runs the jobs of several slots side by side (`slurm.slots_per_job`).

Started by a job script as ``python -X utf8 -P -S -m orchestrator.packing`` in the folder of the pack. The controller
adds members there (`members/<n>`, a file with the member's job folder) while the pack waits or runs; each is started as
the local executor starts a job, by a supervisor that records its end. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from anchorleg.files import create_exclusive, read_json
from orchestrator.jobside import end_of_job

#: How soon a new member, a cancel or an end is noticed.
POLL_S = 0.5
#: Without a member it stays so long for the next one: the controller sees an end, asks the queue, and assigns.
IDLE_S = 60.0


class Pack:
    """One Slurm job's members. `spec`: its `pack.json`."""

    def __init__(self, folder: Path, spec: dict[str, Any], environ: dict[str, str]) -> None:
        self.folder, self.spec, self.environ = folder, spec, environ
        self.ends_at = end_of_job(environ, time.time(), spec["limit_s"])
        self.cores = sorted(os.sched_getaffinity(0))
        self.gpus = [gpu for gpu in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        self.started: set[int] = set()
        self.places: list[tuple[Path, subprocess.Popen[bytes]] | None] = [None] * spec["places"]
        self.told: list[int] = []
        self.ending = False
        self.idle_since = time.monotonic()

    @property
    def running(self) -> list[tuple[Path, subprocess.Popen[bytes]]]:
        """Members that have not ended."""
        return [member for member in self.places if member is not None]

    def look(self) -> None:
        """Once around the loop."""
        for place, member in enumerate(self.places):
            if member is not None and member[1].poll() is not None:
                self.places[place] = None
                self.idle_since = time.monotonic()
        while self.told:
            number = self.told.pop(0)
            self.ending = True  # the walltime is near, or somebody ends the job: nothing new begins
            for _, child in self.running:
                child.send_signal(number)
        for folder, child in self.running:
            if (folder / "cancel").exists():
                child.send_signal(signal.SIGTERM)
        for number in self.waiting() if not self.ending else ():
            if None not in self.places:
                return
            self.start(number, self.places.index(None))

    def waiting(self) -> list[int]:
        """Members that were never started."""
        try:
            names = os.listdir(self.folder / "members")
        except OSError:
            return []
        return sorted({int(name) for name in names if name.isdigit()} - self.started)

    def start(self, number: int, place: int) -> None:
        """Start a member, with its share of the cores and GPUs."""
        self.started.add(number)
        try:
            folder = Path(read_json(self.folder / "members" / str(number))["job_dir"])
        except (OSError, ValueError, KeyError):
            return
        if (folder / "cancel").exists():
            return
        count = len(self.places)
        cores = self.cores[place::count] or self.cores
        gpus = self.gpus[place::count] or ([self.gpus[place % len(self.gpus)]] if self.gpus else [])
        job_id = self.environ.get("ANCHORLEG_JOB_ID") or self.environ["SLURM_JOB_ID"]
        env = {**self.environ, "ANCHORLEG_JOB_ID": f"{job_id}.{number}", "ANCHORLEG_END_TIME": str(int(self.ends_at))}
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        try:
            with open(folder / "supervisor.log", "ab") as log:
                command = [sys.executable, "-X", "utf8", "-P", "-S", "-m", "orchestrator.executors.supervisor"]
                child = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as error:
            print(f"anchorleg: member {number} could not be started: {error}", file=sys.stderr, flush=True)
            return
        with contextlib.suppress(OSError):
            os.sched_setaffinity(child.pid, cores)
        self.places[place] = (folder, child)

    @property
    def is_over(self) -> bool:
        """Whether nothing runs, and nothing is to come."""
        is_idle = time.monotonic() - self.idle_since > IDLE_S
        return not self.running and (self.ending or (is_idle and not self.waiting()))

    def run(self) -> int:
        """Until the last member has ended."""
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda told, _frame: self.told.append(told))
        while not self.is_over:
            self.look()
            time.sleep(POLL_S)
        create_exclusive(self.folder / "closed", b"")
        return 0


def main() -> int:
    """Run the pack in the current folder."""
    folder = Path.cwd()
    return Pack(folder, read_json(folder / "pack.json"), dict(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main())
