"""Sends the probe, follows it, and leaves nothing behind: not in the queue, and not on the disk."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorleg.disks import nearest_folder
from anchorleg.files import read_json_or_none, write_bytes, write_json
from orchestrator.config import RunConfig
from orchestrator.doctor.gather import Subject
from orchestrator.executors.base import Executor, JobRequest, JobRow, JobState, SubmitRefused, Submitted
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.slurm import SlurmExecutor
from orchestrator.notation import format_duration
from orchestrator.run.code import fix_code
from orchestrator.run.submission import job_script

#: The promise to the user: not more than this of anybody's walltime.
LONGEST_S = 180
#: Slurm signals up to a minute early: with this much before it, an early signal still finds the job alive.
BEFORE_SIGNAL_S = 60
#: Enough to load torch and multiply on a GPU; more would only make it wait longer.
ENOUGH_MEMORY_MB = 4096
ENOUGH_CPUS = 2
#: The report is looked for this often, and the queue.
LOOK_S = 0.1
QUEUE_S = 5.0
#: A report may become visible this long after the job has left the queue (attribute caches of NFS keep 60 s).
VISIBLE_WITHIN_S = 75.0
#: The same where another file of the job is in sight already.
LAST_FILE_WITHIN_S = 5.0
#: A job that ends is gone from the queue within some seconds; our waiting for it is politeness only.
LEAVES_WITHIN_S = 10.0


@dataclass
class ProbeResult:
    """What came of a probe. `report`: the job's file, as far as it got; `error`: why there is none or half of one."""

    limit_s: float
    lead_s: float
    job_id: str = ""
    pending_s: float | None = None
    report: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    output: str = ""


def probe_config(config: RunConfig, executor: str, longest_s: int | None) -> RunConfig:
    """The config's own place in the cluster, with a short and small job. `longest_s`: the site's limit, None for none.

    Without a memory request the site's default goes by the CPUs, so they stay.
    """
    limit_s, slurm = LONGEST_S, config.slurm
    lead_s = limit_s - 10  # a local job is signalled to the second
    if executor == "slurm":
        limit_s = min(LONGEST_S, slurm.time_limit, longest_s or LONGEST_S)
        limit_s = max(60, limit_s // 60 * 60)  # Slurm counts walltimes in minutes
        lead_s = limit_s - BEFORE_SIGNAL_S if limit_s > BEFORE_SIGNAL_S else limit_s // 3
    small: dict[str, Any] = {"time_limit": limit_s}
    if slurm.mem is not None:
        small |= {"cpus_per_task": min(ENOUGH_CPUS, slurm.cpus_per_task)}
        if slurm.memory_mb > ENOUGH_MEMORY_MB:
            small["mem"] = f"{ENOUGH_MEMORY_MB}M"
    return config.model_copy(update={"lead_seconds": lead_s, "slurm": slurm.model_copy(update=small)})


def send_probe(subject: Subject, *, wait_s: float, say: Callable[[str], None], longest_s: int | None) -> ProbeResult:
    """Submit the probe and follow it to its end. `wait_s`: how long it may wait in the queue.

    Whatever happens, Ctrl-C and SIGTERM included, the job is cancelled unless it has ended, and its folder removed.
    """
    config = probe_config(subject.config, subject.executor, longest_s)
    result = ProbeResult(config.slurm.time_limit, config.lead_seconds)
    folder = nearest_folder(subject.run_dir.path.parent) / f".probe-{secrets.token_hex(4)}"
    try:
        request = _make_folder(subject, config, folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        result.error = f"the probe's folder cannot be made in {folder.parent}: {error}"
        return result
    jobs, env = folder / "jobs", dict(subject.env)
    on_slurm = subject.executor == "slurm"
    executor = SlurmExecutor(jobs, env, clusters=config.slurm.clusters) if on_slurm else LocalExecutor(jobs, env)
    pursuit = Pursuit(executor, Path(request.job_dir), result, wait_s, say)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt
    try:
        result.error = pursuit.follow(request)
        result.output = _output_of(pursuit.job_dir) if result.error else ""
        return result
    finally:
        pursuit.end()
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


@dataclass
class Pursuit:
    """One probe in flight."""

    executor: Executor
    job_dir: Path
    result: ProbeResult
    wait_s: float
    say: Callable[[str], None]
    visible_within_s: float = VISIBLE_WITHIN_S
    row: JobRow | None = None
    over: bool = False
    unseen: int = 0

    def follow(self, request: JobRequest) -> str:
        """Submit, and watch until all is told; what went wrong, empty where nothing did."""
        told, submitted_at = self.result, time.monotonic()
        outcome = self.executor.submit(request)
        if isinstance(outcome, SubmitRefused):
            self.over = True
            return f"it was refused: {outcome.words}"
        if isinstance(outcome, Submitted):
            told.job_id = outcome.job_id
        self.say(f"job {told.job_id or '?'} is submitted and may wait {format_duration(self.wait_s)}")
        next_poll_at = submitted_at + 1.0
        gone_at: float | None = None
        while True:
            now = time.monotonic()
            waited_s = now - submitted_at
            report = read_json_or_none(self.job_dir / "report.json")
            told.report = report if isinstance(report, dict) else told.report
            if told.report.get("done"):
                return ""
            if told.report and told.pending_s is None:
                told.pending_s = waited_s
                self.say(f"job {told.job_id} runs on {told.report.get('host')} and waits for its signal")
            if now >= next_poll_at:
                next_poll_at = now + QUEUE_S
                self._poll()
                gone_at = (gone_at or now) if self.over else None
            if gone_at is not None:
                state = self.row.raw_state if self.row is not None else "out of the queue"
                in_sight = bool(told.report or _output_of(self.job_dir))
                if in_sight and now - gone_at > LAST_FILE_WITHIN_S:
                    return f"the job ended ({state}) before all checks were done"
                if now - gone_at > self.visible_within_s:
                    return f"the job ended ({state}) and left no file here: check that the nodes see {self.job_dir}"
            running = bool(told.report) or (self.row is not None and self.row.state is not JobState.PENDING)
            if not running and waited_s > self.wait_s:
                reason = (self.row.reason or self.row.raw_state) if self.row is not None else "never in the queue"
                return f"it waited for {format_duration(waited_s)} ({reason}) and was cancelled"
            if waited_s > (told.pending_s or self.wait_s) + told.limit_s + self.visible_within_s:
                return "it did not end in time and was cancelled"
            time.sleep(LOOK_S)

    def end(self) -> None:
        """Cancel the job unless it is known to have ended, and wait a moment until it has left."""
        if self.over or not self.result.job_id:
            return
        if not self.result.report.get("done"):
            self.executor.cancel([self.result.job_id])
        until = time.monotonic() + LEAVES_WITHIN_S
        while not self.over and time.monotonic() < until:
            self._poll()
            time.sleep(10 * LOOK_S)

    def _poll(self) -> None:
        poll = self.executor.poll()
        if poll.error is not None:
            return
        row = next((row for row in poll.rows if row.work_dir == str(self.job_dir)), None)
        self.row = row or self.row
        self.result.job_id = self.result.job_id or (row.job_id if row else "")
        self.unseen = 0 if row is not None else self.unseen + 1  # a job that was just accepted may be missing once
        self.over = (row is not None and row.state is JobState.ENDED) or self.unseen > 1


def _output_of(job_dir: Path) -> str:
    texts = []
    for path in sorted(job_dir.glob("job-*.*")):
        with contextlib.suppress(OSError):
            texts.append(path.read_text(errors="replace"))
    return "".join(texts)[-2000:]


def _make_folder(subject: Subject, config: RunConfig, folder: Path) -> JobRequest:
    """A job's folder and script as `start` makes them, but for the program that the script ends with."""
    limit_s, lead_s = config.slurm.time_limit, config.lead_seconds
    job_dir = folder / "jobs" / "probe"
    job_dir.mkdir(parents=True)
    code_dir = folder / "code" / fix_code(folder / "code")
    spec = {
        "limit_s": limit_s,
        "code_dir": str(code_dir),
        "program_python": config.container.python if config.container else subject.python,
        "own_program": config.command is not None,
        "container": config.container.for_job(subject.config_path.parent, config.slurm) if config.container else None,
    }
    write_json(job_dir / "probe.json", spec)
    write_json(job_dir / "job.json", {"limit_s": limit_s, "lead_s": lead_s})  # for the local supervisor
    text = job_script(
        config, executor=subject.executor, run_name="doctor", slot=0, job_dir=job_dir, code_dir=code_dir,
        python=subject.python,
    )  # fmt: skip
    before, _, after = text.rpartition(" -m orchestrator.shim")
    write_bytes(job_dir / "job.sh", os.fsencode(f"{before} -m orchestrator.doctor.probe{after}"))
    return JobRequest(job_dir=str(job_dir), script=str(job_dir / "job.sh"), gpus=config.slurm.gpus)
