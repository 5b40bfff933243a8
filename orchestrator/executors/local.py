"""Jobs on this machine: the embedded executor, for laptops, demos and machines without Slurm.

Each job has one supervisor process in a session of its own (`orchestrator.executors.supervisor`), so jobs outlive
the controller and a restarted one finds them again by `jobs/<token>/local.json`: pid, start time and boot id. There is
no queue and no room to wait for; only this machine's GPUs are handed out (`gpus_of_slot`).

GPUs are counted by `nvidia-smi -L`: it comes with the driver, and it shows what this process may use (in a container
that was given two of eight, those two).
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorleg.files import read_json_or_none
from anchorleg.job import Job
from anchorleg.words import counted
from orchestrator.disk import is_same_folder
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
from orchestrator.processes import ProcessId, is_alive, send_signal

#: Without the driver's persistence mode the first answer takes seconds; a driver that needs longer hangs.
QUESTION_TIMEOUT_S = 20.0

_GPU = re.compile(r"GPU (\d+): ")
_MIG = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


def visible_gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    """What jobs with the environment `env` may use, as CUDA_VISIBLE_DEVICES names it; empty where there is none.

    A CUDA_VISIBLE_DEVICES in `env` is taken at its word: it names all of them, in its order.
    """
    if (stated := env.get("CUDA_VISIBLE_DEVICES")) is not None:
        return stated_gpus(stated)
    try:
        answer = subprocess.run(
            ["nvidia-smi", "-L"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=QUESTION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return listed_gpus(answer.stdout)


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
    whole = ""
    for line in text.splitlines():
        if match := _GPU.match(line):
            whole = match[1]
            found.append(whole)
        elif match := _MIG.match(line):
            if found and found[-1] == whole:
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


def gpu_environment(
    there: Sequence[str], slot: int, wanted: int, env: Mapping[str, str], carried: Mapping[str, int]
) -> dict[str, str]:
    """What shows a job its GPUs and no other; empty where the machine has none, and nothing is to be said.

    Numbers count as nvidia-smi counts, which is not CUDA's own order. Somebody who states which devices are visible
    means them in the order that their environment says.
    """
    if not there:
        return {}
    order = {} if "CUDA_VISIBLE_DEVICES" in env else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {**order, "CUDA_VISIBLE_DEVICES": ",".join(gpus_of_slot(there, slot, wanted, carried))}


def sharing(there: Sequence[str], places: int, wanted: int) -> str:
    """What a person should know of slots that share GPUs, in one sentence, what to do behind the semicolon; empty where
    none do. `places`: so many of the slots run at once.
    """
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


#: A supervisor writes its first record within a few tenths of a second; on a machine busy enough to need longer,
#: the next polls find it.
START_TIMEOUT_S = 10.0
#: Ended jobs stay listed for good. Who is not listed runs on another machine, or did before that was taken away: only
#: its heart tells, which beats each 30 s, and 60 s later at the latest it is seen in a shared folder.
FORGET_AFTER_S = 120.0


class LocalExecutor:
    """The jobs of one run on this machine. `python`: the interpreter that runs the supervisors."""

    name = "local"
    submit_grace_s = 3 * START_TIMEOUT_S
    #: A job here starts at once: there is no queue to wait in.
    queues_behind = False
    #: And no other node.
    avoids_nodes = False

    def __init__(
        self,
        jobs_dir: Path,
        env: dict[str, str],
        *,
        python: str = sys.executable,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.jobs_dir = jobs_dir
        self._env = env
        self._python = python
        self._clock = clock
        self._sleep = sleep
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
        give_up_at = self._clock() + START_TIMEOUT_S
        while self._clock() < give_up_at:
            if read_json_or_none(job_dir / "local.json") is not None:
                return Submitted(job_id=str(child.pid))
            if child.poll() is not None and read_json_or_none(job_dir / "local.json") is None:
                return SubmitRefused(kind="temporary", words=f"the supervisor ended at once: {_last_words(job_dir)}")
            self._sleep(0.02)
        return Uncertain(why=f"the supervisor wrote nothing within {START_TIMEOUT_S:.0f} s", silent=True)

    def poll(self) -> Poll:
        """Every job that is on this machine, or was, as far as that can be told from here."""
        rows, elsewhere = (tuple(row for row in found if row.state is not JobState.UNKNOWN) for found in self._rows())
        return Poll(at=self._clock(), rows=rows, elsewhere=elsewhere)

    def _rows(self) -> tuple[tuple[JobRow, ...], tuple[JobRow, ...]]:
        self._children = [child for child in self._children if child.poll() is None]
        found: list[tuple[JobRow, str]] = []
        for path in sorted(self.jobs_dir.glob("*/local.json")):
            record = read_json_or_none(path)
            if record is not None:
                found.append((_row(path.parent, record), str(path.parent)))
        return jobs_of_run(found, is_same_folder)

    def accounting(self, since: float) -> Accounting:  # noqa: ARG002 - the folders are the whole history
        """The same folders, which are never forgotten, with the jobs of other machines: how those end is not known."""
        return Accounting(at=self._clock(), status="ok", rows=self._rows()[0])

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
        return gpu_environment(self._gpus, request.slot, request.gpus, self._env, self._carried_beside(request.slot))

    def _carried_beside(self, slot: int) -> Counter[str]:
        """GPU → how many jobs of other slots are on it."""
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
            if row.state is JobState.RUNNING and row.job_id in job_ids:
                record = read_json_or_none(Path(row.work_dir) / "local.json")
                if record is not None:
                    send_signal(ProcessId(**record["supervisor"]), number)


def _has_ended(job_dir: Path) -> bool:
    """Whether the job's own record says so. Its place is given on by that record, a moment before its supervisor sees
    the end.
    """
    spec = read_json_or_none(job_dir / "job.json")
    if spec is None:
        return False
    job = Job(Path(spec["run_dir"]), spec["slot"], spec["attempt"])
    return read_json_or_none(job.attempt_dir / "exit.json") is not None


def _last_words(job_dir: Path) -> str:
    """The last line of its log, which goes with the folder."""
    try:
        lines = (job_dir / "supervisor.log").read_text(errors="replace").split("\n")
    except OSError as error:
        return str(error)
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def _row(job_dir: Path, record: dict[str, Any]) -> JobRow:
    """UNKNOWN: it runs on another machine, or did. Should it be proven to be over, that machine has failed."""
    supervisor = ProcessId(**record["supervisor"])
    raw = record["raw_state"]
    state, reason = _state_of(raw), ""
    if state is JobState.RUNNING:
        alive = is_alive(supervisor)
        if alive is None:
            state, raw = JobState.UNKNOWN, "NODE_FAIL"
        elif not alive:
            # It may have written its end between our read and our look.
            again = read_json_or_none(job_dir / "local.json") or record
            raw = again["raw_state"] if again["raw_state"] != "RUNNING" else "NODE_FAIL"
            state, reason = _state_of(raw), "its supervisor is gone" if raw == "NODE_FAIL" else ""
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


def _state_of(raw: str) -> JobState:
    return JobState.RUNNING if raw == "RUNNING" else JobState.ENDED
