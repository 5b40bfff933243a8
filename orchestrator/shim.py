"""The first process of every job: claims the attempt, runs the program, hands it over, says how it ended.

The job script starts it as ``python -X utf8 -P -S -m orchestrator.shim`` in the job folder, from the run's fixed copy
of the code, and it reads `job.json` there. Standard library only: any Python 3.11 on the compute side will do.

The order of its first acts is the fence that makes at-least-once submission safe: link `attempts/<a>/claim` (the loser
says so and ends); write `parent.json`; only then start the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from anchorleg.files import create_exclusive, make_folder, read_json, read_json_or_none, to_json, write_json
from anchorleg.job import DO_NOT_REQUEUE, HANDED_OVER, Job, candidates_before, checkpoints_of, parent_record
from anchorleg.temporary import HeldFolder
from orchestrator.failover import Watch, tick_if_alone
from orchestrator.jobside import container_command, end_of_job, given, misnamed, oom_kills, tidy, why_not_behind

#: The folders of all jobs on a node.
_SCRATCH = r"anchorleg-s\d+-a\d+-[0-9a-f]{8}"
#: The controller calls a job silent after several of these; a beat is one small file.
HEARTBEAT_S = 30.0
#: How soon a hand-over file, a signal or the program's end is noticed.
POLL_S = 0.2
#: What a stalled program has to print its stacks and die in, before it is killed.
ABORT_S = 30.0
#: A folder that fails for a moment is tried again at the end of the job. All together are short beside Slurm's KillWait
#: (30 s), in which a job that is killed writes its record.
RECORD_WAITS_S = (0.2, 0.5, 1.0, 2.0)
#: What the shim itself could not do. The program's own codes stay below 126.
SHIM_FAILED = 70
#: As the trainer ends where no checkpoint can be told to be good.
DAMAGED = 3
#: Of a trainer whose rank was killed (docs/troubleshooting.md): the kernel may have done so, for memory.
RANKS_LOST = 8


def gpus_of(environ: dict[str, str]) -> str:
    """The GPUs of this job as the node names them, "0,1"; empty: none. Slurm's word first: CUDA counts from 0."""
    return environ.get("SLURM_JOB_GPUS") or environ.get("CUDA_VISIBLE_DEVICES") or ""


class Shim:
    """One job. `spec` is its `job.json` (written by `orchestrator.run.submission`)."""

    def __init__(
        self,
        job_dir: Path,
        spec: dict[str, Any],
        environ: dict[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.job_dir = job_dir
        self.spec = spec
        self.environ = environ
        self.job = Job(Path(spec["run_dir"]), spec["slot"], spec["attempt"])
        self.job_id = environ.get("ANCHORLEG_JOB_ID") or environ.get("SLURM_JOB_ID") or str(os.getpid())
        self.host = environ.get("SLURMD_NODENAME") or os.uname().nodename
        self.hand_over_file = job_dir / "hand-over"
        self.watch = Watch(self.job.run_dir) if spec.get("failover") else None
        self.started_at = time.time()
        self.deadline_at: float | None = None
        self.asked: str | None = None
        self.asked_at: float | None = None
        self.terminated = False
        self.start_step = 0
        self.claimed, self.parent = b"", parent_record(None)
        self.first_progress_at: float | None = None
        self.aborted_at: float | None = None
        self.woken = self.told = False
        self.sleep = sleep
        self.settings: Any = None
        self.beat = 0
        self.oom_kills = oom_kills()
        self.next_beat_at = float("-inf")

    def record(self, **more: Any) -> dict[str, Any]:
        """Who we are, for every file that we write."""
        who = {"token": self.spec["token"], "job_id": self.job_id, "host": self.host, "pid": os.getpid()}
        return {**who, "at": time.time(), **more}

    def times(self) -> dict[str, float | None]:
        """What the accounting of time needs; in each heartbeat too, because a killed job writes no last word."""
        return {"started_at": self.started_at, "asked_at": self.asked_at, "first_progress_at": self.first_progress_at}

    def claim(self) -> bool:
        """Take the attempt. False: another job has it; we said so and must not run."""
        make_folder(self.job.attempt_dir)
        start = self.environ.get("SLURM_JOB_START_TIME", "")
        self.claimed = to_json(self.record(gpus=gpus_of(self.environ), start=start))
        if create_exclusive(self.job.attempt_dir / "claim", self.claimed):
            return True
        winner = read_json_or_none(self.job.attempt_dir / "claim") or {}
        write_json(self.job.attempt_dir / f"duplicate-{self.host}-{os.getpid()}.json", self.record(winner=winner))
        where = f"job {winner.get('job_id', '?')} on {winner.get('host', '?')}"
        say(f"attempt {self.job.attempt} of slot {self.job.slot} already runs in {where}; this duplicate ends.")
        return False

    def make_again(self) -> None:
        """Folders that somebody removed under this job, and its claim; none of a run that is gone. Errors: OSError."""
        for folder, mode in ((self.job_dir, 0o700), (self.job.attempt_dir, 0o755)):
            if not folder.is_dir() and (self.job.run_dir / "run.json").exists():
                make_folder(folder, mode)
                say(f"{folder} was removed during this job and is recreated")
                if folder == self.job.attempt_dir and create_exclusive(folder / "claim", self.claimed):
                    write_json(folder / "parent.json", self.parent)

    def declines(self) -> bool:
        """Whether it was queued behind a job after which it must not run. The record is its own word on its end."""
        if not self.spec.get("ahead"):
            return False
        before = self.job.slot_dir / "attempts" / str(self.spec.get("behind", self.job.attempt - 1))
        if (why := why_not_behind(before, lambda: self.asked is not None, self.sleep)) is None:
            return False
        make_folder(self.job.attempt_dir)
        write_json(self.job.attempt_dir / f"duplicate-{self.host}-{os.getpid()}.json", self.record(unneeded=why))
        say(f"this job is not needed: {why}")
        return True

    def decide_parent(self) -> str:
        """Write `parent.json` and return the folder to start from, empty for none. Errors: OSError, ValueError."""
        parent = next(candidates_before(self.job.slot_dir, self.job.attempt), None)
        self.parent = parent_record(parent)
        write_json(self.job.attempt_dir / "parent.json", self.parent)
        self.start_step = parent.step if parent else 0
        return str(parent.path) if parent else ""

    def tidy(self) -> None:
        """Remove old checkpoints, where the config says how many are to stay."""
        if keep := self.spec.get("keep_checkpoints"):
            tidy(self.job, keep, say)

    def deadline(self) -> float:
        """When to hand over by the clock."""
        end = end_of_job(self.environ, self.started_at, self.spec["limit_s"]) - float(self.spec["lead_s"])
        longest = self.spec.get("max_runtime_s")
        return min(end, self.started_at + float(longest)) if longest else end

    def program(self, parent: str, deadline: float, scratch: Path) -> subprocess.Popen[bytes]:
        """Start the program, in the config's folder, with the contract in its environment."""
        shared = self.spec.get("shared_dir", "")
        described = {
            "ANCHORLEG_RUN_DIR": str(self.job.run_dir),
            "ANCHORLEG_SLOT": str(self.job.slot),
            "ANCHORLEG_SLOTS": str(self.spec.get("slots", 1)),
            "ANCHORLEG_ATTEMPT": str(self.job.attempt),
            "ANCHORLEG_ATTEMPT_DIR": str(self.job.attempt_dir),
            "ANCHORLEG_PARENT": parent,
            "ANCHORLEG_CONFIG": self.spec.get("config_file", ""),
            "ANCHORLEG_DEADLINE": f"{deadline:.3f}",
            "ANCHORLEG_HANDOVER_FILE": str(self.hand_over_file),
            "ANCHORLEG_SCRATCH": str(scratch),
            "ANCHORLEG_RUN_ID": self.spec.get("run_id", ""),
            "ANCHORLEG_RUN_NAME": self.spec.get("run_name", ""),
            "ANCHORLEG_SHARED_DIR": shared,
            "ANCHORLEG_CONTRIBUTIONS": "1" if self.spec.get("accepts_contributions") else "",
            "ANCHORLEG_TERMS": json.dumps(self.spec.get("terms", {})),
        }
        # So that a stalled program can be made to print where it stands (SIGABRT).
        env = {"PYTHONFAULTHANDLER": "1", **self.environ, **self.spec.get("environment", {}), **described}
        setups_path = env.pop("ANCHORLEG_SETUP_PYTHONPATH", "")
        if ours := self.spec.get("python_path"):
            env["PYTHONPATH"] = f"{ours}:{setups_path}" if setups_path else ours
        self.settings = read_json_or_none(Path(self.spec.get("config_file", "")))
        command, folder = list(self.spec["command"]), self.spec["folder"]
        if container := self.spec.get("container"):
            binds = [str(self.job.run_dir), folder, str(scratch)]
            if shared and not Path(shared).is_relative_to(self.job.run_dir):
                binds.append(shared)
            command = container_command(container, command, binds, folder)
            for name in ("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR"):
                env.setdefault(name, str(scratch))
            if container["runtime"] == "ch-run":
                # ch-run mounts $TMPDIR over the image's /tmp, where binds must keep their places; it insists on USER.
                env.pop("TMPDIR", None)
                env.setdefault("USER", str(os.getuid()))
        return subprocess.Popen(command, cwd=folder, env=env, preexec_fn=_ignore_hand_over_signals)  # noqa: PLW1509

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Remember why; the loop acts. A person's `scancel` may come in the middle of a hand-over."""
        self.asked = self.asked or signal.Signals(number).name
        self.terminated = self.terminated or number == signal.SIGTERM

    def tell(self, program: subprocess.Popen[bytes]) -> None:
        """Ask the program to hand over: by the file, which is tried until it is there, and by one signal."""
        if not self.told:
            with contextlib.suppress(OSError):
                self.make_again()
                is_ours = create_exclusive(self.hand_over_file, b"")
                self.told = True
                if self.asked == "SIGUSR2" and not is_ours:
                    self.asked = "asked to"  # the signal came before we had seen the file that it tells of
        if not self.woken:
            self.woken = True
            program.send_signal(signal.SIGUSR2)
            say(f"handing over ({self.asked})")

    def look(self, program: subprocess.Popen[bytes], deadline: float) -> None:
        """Once around the loop: is a hand-over due, is a heartbeat due. No trouble with files stops the program."""
        if self.asked is None and time.time() >= deadline:
            self.asked = "deadline"
        if self.asked is None:
            with contextlib.suppress(OSError):
                self.asked = "asked to" if self.hand_over_file.exists() else None
        if self.asked:
            self.asked_at = self.asked_at or time.time()
            self.tell(program)
        if self.first_progress_at is None:
            value = read_json_or_none(self.job.attempt_dir / "progress.json")
            step = value.get("step") if isinstance(value, dict) else None
            if isinstance(step, int) and step > self.start_step:  # its start-up is over
                self.first_progress_at = time.time()
        if self.aborted_at is not None and time.monotonic() - self.aborted_at > ABORT_S:
            program.kill()
        if time.monotonic() >= self.next_beat_at:
            self.next_beat_at = time.monotonic() + self.spec.get("heartbeat_s", HEARTBEAT_S)
            self.beat += 1
            if self.watch is not None:
                self.watch.look()
            try:
                self.make_again()
                if self.aborted_at is None and (self.job_dir / "abort").exists():
                    self.aborted_at = time.monotonic()
                    self.asked = "stalled"
                    say("no progress for too long: the program prints its stacks and is ended")
                    program.send_signal(signal.SIGABRT)
                if self.asked is None and self.job.superseded_by() is not None:
                    self.asked = "superseded"  # we are a ghost: a program that does not look for itself ends by this
                write_json(self.job.attempt_dir / "heartbeat.json", self.record(beat=self.beat, **self.times()))
            except OSError as error:
                say(f"the heartbeat could not be written ({error}); continuing")

    def run(self) -> int:
        """The whole job. Returns the exit code for the scheduler."""
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.on_signal)
        if self.declines() or not self.claim():
            return 0
        try:
            parent = self.decide_parent()
        except ValueError as error:  # what says where an attempt began is damaged
            say(str(error), sys.stderr)
            return self.end(DAMAGED, str(error))
        self.tidy()
        # The node's own folder for temporary files: `tempfile.gettempdir`, without 4 ms for its import.
        named = (self.environ.get(name) for name in ("SLURM_TMPDIR", "TMPDIR", "TEMP", "TMP"))
        usable = (one for one in (*named, "/tmp", "/var/tmp") if one and os.access(one, os.W_OK | os.X_OK))  # noqa: S108
        base = Path(next(usable, self.job_dir))
        with HeldFolder(f"anchorleg-{self.spec['token']}", base, like=_SCRATCH) as scratch:
            self.deadline_at = deadline = self.deadline()
            try:
                program = self.program(parent, deadline, scratch)
            except OSError as error:
                words = f"{error.filename} could not be started on {self.host}: {error.strerror}"
                say(words, sys.stderr)
                return self.end(127, words)
            while program.poll() is None:
                self.look(program, deadline)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(POLL_S)
            return self.end(program.wait())

    def write_end(self, record: dict[str, Any]) -> None:
        """Write `exit.json`, in several tries. Errors: OSError."""
        for wait_s in RECORD_WAITS_S:
            try:
                return write_json(self.job.attempt_dir / "exit.json", record)
            except OSError:
                self.sleep(wait_s)
        return write_json(self.job.attempt_dir / "exit.json", record)

    def end(self, code: int, words: str = "") -> int:
        """Write `exit.json`, the proof of the end, with what the folder tells; translate the code for the scheduler."""
        facts: dict[str, Any] = {"code": code, "deadline": self.deadline_at, "superseded_by": None}
        with contextlib.suppress(OSError):
            facts["superseded_by"] = self.job.superseded_by()
        with contextlib.suppress(OSError):
            published = checkpoints_of(self.job.slot_dir, self.job.attempt)
            facts["newest"] = published[0].step if published else None
            if not published and (name := misnamed(self.job.attempt_dir / "checkpoints")):
                facts["misnamed"] = name
        with contextlib.suppress(OSError):
            if not self.woken and self.asked in {None, "SIGUSR2"} and self.hand_over_file.exists():
                self.asked = "asked to" if code == HANDED_OVER else self.asked  # the program saw the file before us
        if code in {-signal.SIGKILL, RANKS_LOST} and oom_kills() > self.oom_kills:
            words = words or "out of memory"
        if code == 0:
            with contextlib.suppress(OSError):
                facts["given"] = given(self.spec["command"], self.settings)
        facts |= {"asked": self.asked, "terminated": self.terminated, "words": words}
        try:
            self.write_end(self.record(**self.times(), **facts))
        except OSError as error:
            words = f"the record of the end could not be written ({error}); the scheduler's answer must suffice"
            say(words, sys.stderr)  # where the controller looks for the cause of an end
            return code if 0 < code < SHIM_FAILED else SHIM_FAILED
        self.tidy()  # after the record: what is slow here must not keep the next job waiting
        if self.watch is not None:
            tick_if_alone(self.watch, (self.spec["failover"], sys.executable), self.environ, say)
        if code in {0, HANDED_OVER, DO_NOT_REQUEUE} or facts["superseded_by"] is not None:
            return 0
        return 128 - code if code < 0 else code


def say(line: str, file: TextIO | None = None) -> None:
    """One line for the job's output, or for `file`; a full disk is no reason to end."""
    with contextlib.suppress(OSError):
        print(f"anchorleg: {line}", file=file, flush=True)


def _ignore_hand_over_signals() -> None:
    """In the program: a Slurm `scancel` sends TERM to every process."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main() -> int:
    """Run the job described by `job.json` in the current folder."""
    job_dir = Path.cwd()
    try:
        spec = read_json(job_dir / "job.json")
    except (OSError, json.JSONDecodeError) as error:
        say(f"{job_dir}/job.json cannot be read ({error}); this job cannot run.", sys.stderr)
        return SHIM_FAILED
    return Shim(job_dir, spec, dict(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main())
