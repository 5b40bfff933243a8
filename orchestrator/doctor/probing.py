"""Sends the probe, follows it, and leaves nothing behind: not in the queue, and not on the disk."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from anchorleg.disks import nearest_folder
from anchorleg.files import read_json_or_none, write_bytes, write_json
from anchorleg.places import user_path
from orchestrator.config import RunConfig
from orchestrator.decisions.reasons import BOOTING
from orchestrator.doctor.facts import ProbeResult
from orchestrator.doctor.gather import Subject
from orchestrator.executors.base import Executor, JobRequest, JobRow, JobState, SubmitRefused, Submitted
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.slurm import SlurmExecutor
from orchestrator.notation import format_duration
from orchestrator.run.code import fix_code
from orchestrator.run.submission import job_script
from trainer.config.section import resolve

#: The promise to the user: not more than this of anybody's walltime.
LONGEST_S = 180
#: Slurm signals up to a minute early: with this much before it, an early signal still finds the job alive.
BEFORE_SIGNAL_S = 60
#: Slurm counts walltimes in minutes.
MINUTE_S = 60
#: The probe loads torch and draws one picture; more memory would only make it wait longer.
ENOUGH_MEMORY_MB = 4096
ENOUGH_CPUS = 2
#: A file is looked for this often; the queue at first every two seconds, then every ten.
LOOK_S = 0.1
QUEUE_S = 10.0
FIRST_QUEUE_S = 2.0
#: So long the start of a node counts as no wait. Some need a quarter of an hour; one that does not end is told.
BOOT_S = 3600.0
#: A report may become visible this long after the job has left the queue (attribute caches of NFS keep 60 s).
VISIBLE_WITHIN_S = 75.0
#: The same where another file of the job is in sight already.
LAST_FILE_WITHIN_S = 5.0
#: A job that ends is gone from the queue within some seconds; our waiting for it is politeness only.
LEAVES_WITHIN_S = 10.0
#: Round trips of a small file; the first one meets cold caches.
PINGS = 5
OUTPUT_CHARS = 2000
_MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


#: Told what is happening: words, and what changes all the time (for a line that is rewritten).
Say = Callable[[str, str], None]


def times_of(config: RunConfig, executor: str, longest_s: int | None) -> tuple[int, int]:
    """(walltime, lead) of the probe in seconds. `longest_s`: the partition's limit, None for none.

    A local job is signalled to the second, so its lead leaves ten seconds only.
    """
    if executor != "slurm":
        return LONGEST_S, LONGEST_S - 10
    limit_s = min(LONGEST_S, config.slurm.time_limit, longest_s or LONGEST_S)
    limit_s = max(MINUTE_S, limit_s // MINUTE_S * MINUTE_S)
    return limit_s, limit_s - BEFORE_SIGNAL_S if limit_s > BEFORE_SIGNAL_S else limit_s // 3


def probe_config(config: RunConfig, limit_s: int, lead_s: int) -> RunConfig:
    """The config's own place in the cluster, with a small job. Without a memory request the site's default goes by
    the CPUs, so they stay.
    """
    slurm = config.slurm
    small: dict[str, Any] = {"time_limit": limit_s}
    if slurm.mem is not None:
        small |= {"cpus_per_task": min(ENOUGH_CPUS, slurm.cpus_per_task)}
        if _megabytes(slurm.mem) > ENOUGH_MEMORY_MB:
            small["mem"] = f"{ENOUGH_MEMORY_MB}M"
    return config.model_copy(update={"lead_seconds": lead_s, "slurm": slurm.model_copy(update=small)})


def probe_script(config: RunConfig, *, executor: str, job_dir: Path, code_dir: Path, python: str) -> str:
    """A job script as `start` makes it, but for the program. Errors: ValueError where the template has changed."""
    text = job_script(
        config, executor=executor, run_name="doctor", slot=0, job_dir=job_dir, code_dir=code_dir, python=python
    )
    before, shim, after = text.rpartition(" -m orchestrator.shim")
    if not shim or after.strip():
        raise ValueError("the job script does not end with the shim")
    return f"{before} -m orchestrator.doctor.probe{after}"


def tasks_tried(config: RunConfig) -> tuple[str, ...]:
    """What the probe loads and steps: Meta-World's tasks, and of no other suite."""
    env = resolve(config.training_of(0)).env
    return env.tasks if env.name == "metaworld" else ()


def send_probe(subject: Subject, *, wait_s: float, say: Say, longest_s: int | None = None) -> ProbeResult:
    """Submit the probe and follow it to its end. `wait_s`: how long it may wait in the queue.

    Whatever happens, Ctrl-C and SIGTERM included, the job is cancelled unless it has ended, and its folder removed.
    """
    limit_s, lead_s = times_of(subject.config, subject.executor, longest_s)
    parent = nearest_folder(subject.run_dir.path.parent)
    folder = parent / f".probe-{secrets.token_hex(4)}"
    try:
        request = _make_folder(subject, folder, limit_s, lead_s)
    except (OSError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        return ProbeResult(error=f"the probe's folder cannot be made in {parent}: {error}")
    jobs_dir = folder / "jobs"
    executor: Executor
    if subject.executor == "slurm":
        executor = SlurmExecutor(jobs_dir, subject.env)
    else:
        executor = LocalExecutor(jobs_dir, dict(subject.env))
    pursuit = Pursuit(executor, Path(request.job_dir), limit_s, lead_s, wait_s, say)
    with _terminated_is_interrupted():
        try:
            return pursuit.follow(request)
        finally:
            pursuit.end()
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Pursuit:
    """One probe in flight."""

    executor: Executor
    job_dir: Path
    limit_s: int
    lead_s: int
    wait_s: float
    say: Say
    visible_within_s: float = VISIBLE_WITHIN_S
    job_id: str = ""
    row: JobRow | None = None
    over: bool = False
    unseen: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    started_after_s: float | None = None
    pings: int = 0
    ping_at: float | None = None
    visible_s: list[float] = field(default_factory=list)
    skews_s: list[float] = field(default_factory=list)

    def follow(self, request: JobRequest) -> ProbeResult:
        """Submit, watch, and say what came of it."""
        submitted_at = looked_at = time.monotonic()
        booted_s = 0.0
        outcome = self.executor.submit(request)
        if isinstance(outcome, SubmitRefused):
            self.over = True
            return self._result(error=f"it was refused: {outcome.words}")
        if isinstance(outcome, Submitted):
            self.job_id = outcome.job_id
        next_poll_at = time.monotonic() + 1.0
        gone_at: float | None = None
        while True:
            now = time.monotonic()
            if self._is_booting and booted_s < BOOT_S:
                booted_s += now - looked_at
                submitted_at += now - looked_at  # nobody waits for a turn, and a node may need many minutes
            looked_at = now
            self._look()
            if self.report.get("done"):
                return self._result()
            if self.report and self.started_after_s is None:
                self.started_after_s = now - submitted_at
            self.say(*self._words(now - submitted_at))
            if now >= next_poll_at:
                next_poll_at = now + min(QUEUE_S, max(FIRST_QUEUE_S, now - submitted_at))
                self._poll()
                gone_at = (gone_at or now) if self.over else None
            if gone_at is not None and now - gone_at > self._patience_s():
                state = self.row.raw_state if self.row is not None else "out of the queue"
                words = f"the job ended ({state}) before it had looked at everything"
                if not self.report and not output_of(self.job_dir):
                    words = f"the job ended ({state}) and no file of it is seen here: do the nodes see {self.job_dir}?"
                return self._result(error=words)
            waited_s = now - submitted_at
            running = bool(self.report) or (self.row is not None and self.row.state is not JobState.PENDING)
            if not running and waited_s > self.wait_s:
                reason = (self.row.reason or self.row.raw_state) if self.row is not None else "it was never seen there"
                words = f"it waited for {format_duration(waited_s + booted_s)} ({reason}) and was cancelled"
                return self._result(error=words)
            if waited_s > (self.started_after_s or self.wait_s) + self.limit_s + self.visible_within_s:
                return self._result(error="it did not end in its time and was cancelled")
            time.sleep(LOOK_S)

    def end(self) -> None:
        """Cancel the job unless it is known to have ended, and wait a moment until it has left."""
        if self.over or not self.job_id:
            return
        if not self.report.get("done"):
            self.executor.cancel([self.job_id])
        until = time.monotonic() + LEAVES_WITHIN_S
        while not self.over and time.monotonic() < until:
            self._poll()
            time.sleep(10 * LOOK_S)

    @property
    def _is_booting(self) -> bool:
        """Whether it has its node, which is being started."""
        return not self.report and self.row is not None and self.row.raw_state == BOOTING

    def _patience_s(self) -> float:
        """How long the report of a job that has ended may still take to show."""
        in_sight = bool(self.report) or bool(output_of(self.job_dir))
        return LAST_FILE_WITHIN_S if in_sight else self.visible_within_s

    def _look(self) -> None:
        report = read_json_or_none(self.job_dir / "report.json")
        if isinstance(report, dict):
            self.report = report
        if not self.report:
            return
        now = time.time()
        if self.ping_at is None:
            if self.pings < PINGS:
                write_json(self.job_dir / "ping.json", {"number": self.pings, "at": now})
                self.ping_at = now
            return
        pong = read_json_or_none(self.job_dir / "pong.json")
        if isinstance(pong, dict) and pong.get("number") == self.pings:
            self.visible_s.append(now - self.ping_at)
            self.skews_s.append(float(pong["at"]) - (self.ping_at + now) / 2)
            self.pings, self.ping_at = self.pings + 1, None

    def _poll(self) -> None:
        poll = self.executor.poll()
        if poll.error is not None:
            return
        row = next((row for row in poll.rows if row.work_dir == str(self.job_dir)), None)
        self.row = row or self.row
        self.job_id = self.job_id or (row.job_id if row else "")
        # A job that was just accepted may be missing once.
        self.unseen = 0 if row is not None else self.unseen + 1
        self.over = (row is not None and row.state is JobState.ENDED) or self.unseen > 1

    def _words(self, waited_s: float) -> tuple[str, str]:
        job = f"job {self.job_id or '?'}"
        if self.report:
            run_s = time.time() - float(self.report["started_at"])
            detail = f" ({run_s:.0f} s of at most {self.limit_s} s)"
            where = f"{job} runs on {self.report.get('host')}"
            if looking := self.report.get("looking"):
                return f"{where}, looks at: {looking}", detail
            heard = "SIGUSR2" in self.report.get("heard", {})
            return f"{where}, {'has heard' if heard else 'waits for'} the signal", detail
        if self.row is not None and self._is_booting:
            return f"{job}: its node {self.row.node} is being started", ""
        if self.row is not None and self.row.state is JobState.PENDING:
            left = format_duration(max(0.0, self.wait_s - waited_s))
            return f"{job} waits in the queue ({self.row.reason or 'no reason told'})", f", {left} more at most"
        return f"{job} is submitted", ""

    def _result(self, error: str = "") -> ProbeResult:
        return ProbeResult(
            job_id=self.job_id,
            pending_s=self.started_after_s,
            limit_s=self.limit_s,
            lead_s=self.lead_s,
            report=self.report,
            visible_s=tuple(self.visible_s),
            # The fastest round trip knows the other's clock best.
            skew_s=min(zip(self.visible_s, self.skews_s, strict=True))[1] if self.visible_s else None,
            error=error,
            output=output_of(self.job_dir) if error else "",
        )


def output_of(job_dir: Path) -> str:
    """The end of what the job printed."""
    texts = []
    for path in sorted(job_dir.glob("job-*.*")):
        with contextlib.suppress(OSError):
            texts.append(path.read_text(errors="replace"))
    return "".join(texts)[-OUTPUT_CHARS:]


def _make_folder(subject: Subject, folder: Path, limit_s: int, lead_s: int) -> JobRequest:
    config = probe_config(subject.config, limit_s, lead_s)
    job_dir = folder / "jobs" / "probe"
    job_dir.mkdir(parents=True)
    code_dir = folder / "code" / fix_code(folder / "code")
    container = None
    if config.container is not None:
        image = str(subject.config_path.parent / user_path(config.container.image))
        container = config.container.model_dump() | {"image": image, "gpus": config.slurm.gpus}
    spec = {
        "limit_s": limit_s,
        "lead_s": lead_s,
        "code_dir": str(code_dir),
        "program_python": config.container.python if config.container else subject.python,
        "own_program": config.command is not None,
        "container": container,
        "tasks": tasks_tried(subject.config),
    }
    write_json(job_dir / "probe.json", spec)
    write_json(job_dir / "job.json", {"limit_s": limit_s, "lead_s": lead_s})  # for the local supervisor
    script = probe_script(config, executor=subject.executor, job_dir=job_dir, code_dir=code_dir, python=subject.python)
    write_bytes(job_dir / "job.sh", os.fsencode(script))
    return JobRequest(job_dir=str(job_dir), script=str(job_dir / "job.sh"), gpus=config.slurm.gpus)


@contextlib.contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """A SIGTERM ends us as Ctrl-C does: with the job cancelled."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _megabytes(text: str) -> float:
    return float(text.rstrip("KMGT")) * _MEGABYTES.get(text[-1], 1)
