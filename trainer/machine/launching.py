"""`trainer train --ranks N`: the same command N times over, in this machine's processes or as the tasks of `srun`.

The process that starts them computes nothing. It gives back rank 0's exit code: torchrun would make 1 of 75 and 93, and
srun whatever is largest. A hand-over is asked of rank 0 by the hand-over file, which the shim makes; here
the starter makes it where a signal asks. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorleg.files import create_exclusive, make_folder
from anchorleg.job import HANDED_OVER, Job
from anchorleg.signals import HAND_OVER_SIGNALS
from trainer.errors import ConfigError, RanksError

#: How many ranks there are, and the host where rank 0 waits for the others; of several nodes rank 0 itself knows best.
RANKS, HOST = "ANCHORLEG_RANKS", "ANCHORLEG_RANKS_HOST"
#: Where no srun says it: which rank a process is, and the process that started it.
RANK, STARTER = "ANCHORLEG_RANK", "ANCHORLEG_RANKS_STARTER"
#: What torchrun tells each process that it starts, beside its place.
TORCHRUN = "TORCHELASTIC_RUN_ID"
#: In the attempt's folder: the exit code of rank 0, or of the first that failed. Under srun nobody else can say it.
CODE = "ranks-exit"
LOOPBACK = "127.0.0.1"
#: How soon an end is noticed.
LOOK_S = 0.1
#: What the other ranks have to end in once one has failed, and a program that prints its stacks: then they are killed.
GRACE_S = 30.0
#: What srun has to end in once rank 0 is done, and then once more where it is told to.
LEAVE_S = 2.0


@dataclass(frozen=True)
class RankPlace:
    """Which of `size` ranks a process is, which of the `here` ones of its node, and the `host` where rank 0 waits."""

    rank: int
    size: int
    at: int
    here: int
    host: str


def place_of(environ: Mapping[str, str]) -> RankPlace | None:
    """The place of this process; None: nobody started it as a rank."""
    if RANKS not in environ:
        return None
    size, host = int(environ[RANKS]), environ[HOST]
    if RANK in environ:
        rank = int(environ[RANK])
        return RankPlace(rank, size, rank, size, host)
    nodes = int(environ.get("SLURM_STEP_NUM_NODES", "1"))
    return RankPlace(int(environ["SLURM_PROCID"]), size, int(environ["SLURM_LOCALID"]), max(1, size // nodes), host)


def check_ranks(shards: int, ranks: int) -> None:
    """Errors: ConfigError where the shards cannot be shared out evenly."""
    if shards % ranks:
        raise ConfigError("ranks.uneven-shards", shards=shards, ranks=ranks)


def check_starter(environ: Mapping[str, str]) -> None:
    """Errors: ConfigError where torchrun started this process beside others, which would all train into one folder."""
    size = environ.get("WORLD_SIZE", "1") if TORCHRUN in environ else "1"
    if size != "1":
        raise ConfigError("ranks.by-torchrun", size=size)


def cores_of_rank(cores: int, here: int, environ: Mapping[str, str] = os.environ) -> int:
    """Of the `cores` that it may use: the `here` ranks of its node share them, unless srun has shared them out."""
    own = int(environ.get("SLURM_CPUS_PER_TASK", "0")) if RANKS in environ and RANK not in environ else 0
    return cores if cores <= own else max(1, cores // here)


def leave_code(attempt_dir: Path, code: int) -> None:
    """Say how the ranks end, unless one has said so before. A full disk is no reason to fail."""
    with contextlib.suppress(OSError):
        create_exclusive(attempt_dir / CODE, str(code).encode())


def launch(job: Job, ranks: int, environ: Mapping[str, str], command: Sequence[str], say: Callable[[str], None]) -> int:
    """Run `command` as so many ranks of `job`; the exit code for all of them.

    Errors: ConfigError where srun is not there, or the job has another number of tasks.
    """
    make_folder(job.attempt_dir)
    asked_file = job.hand_over_file or job.attempt_dir / "hand-over"
    tasks = int(environ.get("SLURM_NTASKS", "1")) if "SLURM_JOB_ID" in environ else 1
    if tasks not in {1, ranks}:
        raise ConfigError("ranks.other-tasks", tasks=tasks, ranks=ranks)
    env = {**environ, **_described(job, asked_file), RANKS: str(ranks)}
    for number in HAND_OVER_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the ranks begin so, until they listen
    if tasks > 1:
        many = int(environ.get("SLURM_JOB_NUM_NODES", "1")) > 1
        env[HOST] = os.uname().nodename if many else LOOPBACK
        words = ["srun", "--kill-on-bad-exit=1", f"--ntasks={ranks}", "--export=ALL"]
        words += [f"--cpus-per-task={environ['SLURM_CPUS_PER_TASK']}"] if "SLURM_CPUS_PER_TASK" in environ else []
        started = [_started([*words, *command], env)]
    else:
        env |= {HOST: LOOPBACK, STARTER: str(os.getpid())}
        started = [_started(command, {**env, RANK: str(rank)}) for rank in range(ranks)]
    _listen(job, asked_file, started, environ["SLURM_JOB_ID"] if tasks > 1 else None)
    return _end_of_step(started[0], job, say) if tasks > 1 else _end_of_ranks(started, job, say)


def _described(job: Job, asked_file: Path) -> dict[str, str]:
    """`job` as the shim would describe it."""
    return {
        "ANCHORLEG_RUN_DIR": str(job.run_dir),
        "ANCHORLEG_SLOT": str(job.slot),
        "ANCHORLEG_SLOTS": str(job.slots),
        "ANCHORLEG_ATTEMPT": str(job.attempt),
        "ANCHORLEG_ATTEMPT_DIR": str(job.attempt_dir),
        "ANCHORLEG_CONFIG": str(job.config or ""),
        "ANCHORLEG_DEADLINE": str(job.deadline or ""),
        "ANCHORLEG_HANDOVER_FILE": str(asked_file),
        "ANCHORLEG_SCRATCH": str(job.scratch or tempfile.gettempdir()),
        "ANCHORLEG_RUN_ID": job.run_id,
        "ANCHORLEG_RUN_NAME": job.run_name,
        "ANCHORLEG_SHARED_DIR": str(job.shared_dir),
        "ANCHORLEG_CONTRIBUTIONS": "1" if job.accepts_contributions else "",
    }


def _started(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(command), env=dict(env))
    except OSError as error:
        raise ConfigError("program.not-started", program=command[0], why=error.strerror) from error


def _listen(job: Job, asked_file: Path, started: Sequence[subprocess.Popen[bytes]], slurm_job: str | None) -> None:
    """A signal asks for a hand-over; under a shim the file is the shim's. SIGABRT has all print stacks and end.

    `slurm_job`: its number where `started` is srun, which would end the step at the one and die of the other.
    """

    def ask(number: int, _frame: object) -> None:
        if job.hand_over_file is None:
            with contextlib.suppress(OSError):
                asked_file.touch()
        if slurm_job is None:
            started[0].send_signal(number)  # sooner than the file, which a network's folder may show late

    def abort(number: int, _frame: object) -> None:
        if slurm_job is not None:
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # all of the job but its script
                words = ["scancel", f"--signal={signal.Signals(number).name.removeprefix('SIG')}", slurm_job]
                subprocess.run(words, timeout=GRACE_S, check=False)
        for process in started if slurm_job is None else ():
            process.send_signal(number)
        _wait_for(started, GRACE_S)
        os._exit(128 + number)

    for number in HAND_OVER_SIGNALS:
        signal.signal(number, ask)
    signal.signal(signal.SIGABRT, abort)


def _end_of_ranks(ranks: Sequence[subprocess.Popen[bytes]], job: Job, say: Callable[[str], None]) -> int:
    """Wait for rank 0, or for any that fails; a while for the others, and then for nobody."""
    while ranks[0].poll() is None and not any(rank.poll() for rank in ranks):
        time.sleep(LOOK_S)
    _wait_for(ranks, GRACE_S)
    killed = [number for number, rank in enumerate(ranks) if (rank.poll() or 0) < 0]
    killed.sort(key=lambda number: ranks[number].returncode == -signal.SIGABRT)  # torch aborts where a peer is gone
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
            rank.wait()
    for number in killed[:1]:
        by = signal.Signals(-ranks[number].returncode).name
        say(f"rank {number} was killed by {by}: all ranks end; the last checkpoint is good")
    code = _code_of(job)  # rank 0's, or of the rank that failed first
    if code is None:
        code = ranks[0].returncode
    return code if code >= 0 else RanksError.exit_code


def _end_of_step(step: subprocess.Popen[bytes], job: Job, say: Callable[[str], None]) -> int:
    """Wait for srun; what rank 0 left of its exit code, or the first that failed.

    An srun that got scancel's signal waits long for a step that is over: there it is not waited for as long.
    """
    until, code = float("inf"), None
    while step.poll() is None and time.monotonic() < until:
        time.sleep(LOOK_S)
        if code is None and (code := _code_of(job)) is not None:
            until = time.monotonic() + (LEAVE_S if code in {0, HANDED_OVER} else GRACE_S)
    for end in (step.terminate, step.kill):
        if step.poll() is None:
            end()
            _wait_for([step], LEAVE_S)
    code = _code_of(job)
    if code is not None:
        return code
    say(f"a rank ended without a message (srun: {step.returncode}): all ranks end; the last checkpoint is good")
    return step.returncode if 0 < (step.returncode or 0) < HANDED_OVER else RanksError.exit_code


def _code_of(job: Job) -> int | None:
    """What is in the file; None: nothing yet."""
    try:
        return int((job.attempt_dir / CODE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _wait_for(processes: Sequence[subprocess.Popen[bytes]], longest_s: float) -> None:
    until = time.monotonic() + longest_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
