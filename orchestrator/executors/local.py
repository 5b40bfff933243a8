"""Jobs on this machine: the embedded executor, for laptops, demos and machines without Slurm.

Each job has one supervisor process in a session of its own (`orchestrator.executors.supervisor`), so jobs outlive
the controller and a restarted one finds them again by `jobs/<token>/local.json`: pid, start time and boot id. There is
no queue and no room to wait for; only this machine's GPUs are handed out.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorleg.files import read_json_or_none
from anchorleg.job import Job
from anchorleg.words import counted
from orchestrator.executors.base import (
    Accounting,
    JobRequest,
    JobRow,
    JobState,
    Poll,
    SubmitRefused,
    Submitted,
    Uncertain,
    jobs_of_run,
)
from orchestrator.executors.slurm import NoAnswer, run_command
from orchestrator.processes import ProcessId, is_alive, send_signal

#: Without the driver's persistence mode the first answer takes seconds; a driver that needs longer hangs.
QUESTION_TIMEOUT_S = 20.0

_GPU = re.compile(r"GPU (\d+): ")
_MIG = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


def visible_gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    """What jobs with the environment `env` may use, as CUDA_VISIBLE_DEVICES names it; empty where there is none. One in
    `env` is taken at its word. Else the driver's `nvidia-smi -L` shows what this process may use, also in a container.
    """
    if (stated := env.get("CUDA_VISIBLE_DEVICES")) is not None:
        return stated_gpus(stated)
    answer = run_command(["nvidia-smi", "-L"], env, QUESTION_TIMEOUT_S)
    return () if isinstance(answer, NoAnswer) or answer.returncode != 0 else listed_gpus(answer.stdout)


def stated_gpus(text: str) -> tuple[str, ...]:
    """What a CUDA_VISIBLE_DEVICES names. As CUDA reads it, nothing counts from the first name that can be none on."""
    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not name or name.startswith("-"):
            break
        names.append(name)
    return tuple(dict.fromkeys(names))


def listed_gpus(text: str) -> tuple[str, ...]:
    """What `nvidia-smi -L` lists: a GPU by its number, the parts of a divided one (MIG) by their names."""
    found: list[str] = []
    for line in text.splitlines():
        if match := _GPU.match(line):
            found.append(match[1])
        elif match := _MIG.match(line):
            if found and found[-1].isdigit():
                found.pop()
            found.append(match[1])
    return tuple(found)


def gpus_of_slot(there: Sequence[str], slot: int, wanted: int, carried: Mapping[str, int]) -> tuple[str, ...]:
    """So many of `there` as are `wanted`, the same ones for each of a slot's jobs, unless others carry fewer jobs of
    other slots (`carried`: GPU → jobs): no GPU is shared while one is free.
    """
    count = min(wanted, len(there))
    first = slot * count % len(there)
    return tuple(sorted((*there[first:], *there[:first]), key=lambda gpu: carried.get(gpu, 0))[:count])


def sharing(there: Sequence[str], places: int, wanted: int) -> str:
    """What a person should know of slots that share GPUs, with advice; empty where none do. `places`: slots at once."""
    if not there or not wanted:
        return ""
    here = counted(len(there), "GPU")
    if wanted > len(there):
        return f"slurm.gpus asks for {wanted}, and this machine has {here}; set it to {len(there)}."
    if places * wanted <= len(there):
        return ""
    return (
        f"{places} slots at a time, of {counted(wanted, 'GPU')} each, share {here} of this machine: each trains more "
        f"slowly, and a GPU's memory must hold all its slots; slurm.max_jobs {len(there) // wanted} avoids sharing."
    )


#: A supervisor writes its first record within tenths of a second; where it needs longer, the next polls find it.
START_TIMEOUT_S = 10.0
#: Ended jobs stay listed. Of one on another machine only the heart tells: each 30 s, seen 60 s later at the latest.
FORGET_AFTER_S = 120.0


class LocalExecutor:
    """The jobs of one run on this machine. `python`: the interpreter that runs the supervisors."""

    name = "local"
    submit_grace_s = 3 * START_TIMEOUT_S
    queues_behind = False
    avoids_nodes = False

    def __init__(self, jobs_dir: Path, env: dict[str, str], *, python: str = sys.executable) -> None:
        self.jobs_dir = jobs_dir
        self._env = env
        self._python = python
        self._children: list[subprocess.Popen[bytes]] = []
        self._gpus: tuple[str, ...] | None = None

    def submit(self, request: JobRequest) -> Submitted | Uncertain | SubmitRefused:
        """Start a supervisor and wait for its first record."""
        job_dir = Path(request.job_dir)
        code_dir = Path(__file__).resolve().parents[2]
        try:
            with open(job_dir / "supervisor.log", "ab") as log:
                child = subprocess.Popen(
                    [self._python, "-X", "utf8", "-P", "-S", "-m", "orchestrator.executors.supervisor"],
                    cwd=job_dir,
                    env={**self._env, **self._gpus_for(request), "PYTHONPATH": str(code_dir)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            return SubmitRefused(kind="temporary", words=f"the supervisor could not be started: {error}")
        self._children.append(child)
        give_up_at = time.time() + START_TIMEOUT_S
        while time.time() < give_up_at:
            if read_json_or_none(job_dir / "local.json") is not None:
                return Submitted(job_id=str(child.pid))
            if child.poll() is not None and read_json_or_none(job_dir / "local.json") is None:
                return SubmitRefused(kind="temporary", words=f"the supervisor ended at once: {_last_words(job_dir)}")
            time.sleep(0.02)
        return Uncertain(why=f"the supervisor wrote nothing within {START_TIMEOUT_S:.0f} s", silent=True)

    def poll(self) -> Poll:
        """Every job that is on this machine, or was, as far as that can be told from here."""
        rows, elsewhere = (tuple(row for row in found if row.state is not JobState.UNKNOWN) for found in self._rows())
        return Poll(at=time.time(), rows=rows, elsewhere=elsewhere)

    def _rows(self) -> tuple[tuple[JobRow, ...], tuple[JobRow, ...]]:
        self._children = [child for child in self._children if child.poll() is None]
        paths = sorted(self.jobs_dir.glob("*/local.json"))
        records = ((path.parent, read_json_or_none(path)) for path in paths)
        return jobs_of_run((_row(folder, record), str(folder)) for folder, record in records if record is not None)

    def accounting(self, since: float) -> Accounting:  # noqa: ARG002 - the folders are the whole history
        """The same folders, which are never forgotten, with the jobs of other machines: how those end is not known."""
        return Accounting(at=time.time(), status="ok", rows=self._rows()[0])

    def wake(self, job_ids: list[str]) -> str | None:
        """SIGUSR2 by way of each job's supervisor."""
        self._signal(job_ids, signal.SIGUSR2)
        return None

    def is_free(self, request: JobRequest, place: int) -> bool:  # noqa: ARG002 - see `Executor`
        """There is one place."""
        return False

    def cancel(self, job_ids: list[str], *, waiting: bool = False) -> str | None:  # noqa: ARG002 - see `Executor`
        """TERM to every process of the jobs, KILL after a grace, by way of their supervisors."""
        self._signal(job_ids, signal.SIGTERM)
        return None

    def forget_after_s(self) -> float:
        """See `Executor`."""
        return FORGET_AFTER_S

    def _gpus_for(self, request: JobRequest) -> dict[str, str]:
        if request.gpus is None:
            return {}
        if self._gpus is None:  # once: a machine does not grow, and the driver may take a second to answer
            self._gpus = visible_gpus(self._env)
        if not self._gpus:
            return {}
        own = gpus_of_slot(self._gpus, request.slot, request.gpus, self._carried_beside(request.slot))
        # nvidia-smi counts by PCI bus, and CUDA need not. Set visible devices follow the order of their environment.
        order = {} if "CUDA_VISIBLE_DEVICES" in self._env else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return {**order, "CUDA_VISIBLE_DEVICES": ",".join(own)}

    def _carried_beside(self, slot: int) -> Counter[str]:
        carried: Counter[str] = Counter()
        for path in self.jobs_dir.glob("*/local.json"):
            record = None if path.parent.name.startswith(f"s{slot}-") else read_json_or_none(path)
            if record is None or record["raw_state"] != "RUNNING" or _has_ended(path.parent):
                continue
            if is_alive(ProcessId(**record["supervisor"])):
                carried.update(stated_gpus(record.get("gpus", "")))
        return carried

    def _signal(self, job_ids: list[str], number: signal.Signals) -> None:
        for row in self._rows()[0]:
            is_meant = row.state is JobState.RUNNING and row.job_id in job_ids
            if is_meant and (record := read_json_or_none(Path(row.work_dir) / "local.json")) is not None:
                send_signal(ProcessId(**record["supervisor"]), number)


def _has_ended(job_dir: Path) -> bool:
    """By the job's own record, which gives its place on a moment before its supervisor sees the end."""
    spec = read_json_or_none(job_dir / "job.json")
    if spec is None:
        return False
    job = Job(Path(spec["run_dir"]), spec["slot"], spec["attempt"])
    return read_json_or_none(job.attempt_dir / "exit.json") is not None


def _last_words(job_dir: Path) -> str:
    try:
        lines = (job_dir / "supervisor.log").read_text(errors="replace").split("\n")
    except OSError as error:
        return str(error)
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def _row(job_dir: Path, record: dict[str, Any]) -> JobRow:
    """UNKNOWN: it runs on another machine, or did. Should it be proven to be over, that machine has failed."""
    supervisor = ProcessId(**record["supervisor"])
    raw, reason = record["raw_state"], ""
    state = JobState.RUNNING if raw == "RUNNING" else JobState.ENDED
    if state is JobState.RUNNING:
        alive = is_alive(supervisor)
        if alive is None:
            state, raw = JobState.UNKNOWN, "NODE_FAIL"
        elif not alive:
            # It may have written its end between our read and our look.
            again = read_json_or_none(job_dir / "local.json") or record
            raw = again["raw_state"] if again["raw_state"] != "RUNNING" else "NODE_FAIL"
            state, reason = JobState.ENDED, "its supervisor is gone" if raw == "NODE_FAIL" else ""
    return JobRow(
        job_id=str(supervisor.pid),
        state=state,
        raw_state=raw,
        work_dir=record.get("folder", str(job_dir)),
        reason=reason,
        node=record["node"],
        started_at=record["started_at"],
        ends_at=record["ends_at"],
        exit_code=record["exit_code"],
    )
