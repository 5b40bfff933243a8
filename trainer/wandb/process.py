"""The process that sends a slot's curves, seen from the learner: started, listened to, ended. It is never waited for.

The learner hands it nothing while it trains. What connects them are two pipes: one that the learner never writes to,
whose end tells the process to end, and one on which the process says a sentence now and then.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from anchorleg.children import python_path
from anchorleg.job import Job
from anchorleg.temporary import HeldFolder
from trainer.config.wandb import WANDB_MODES, wandb_mode
from trainer.machine.signals import hand_over_blocked
from trainer.wandb import destination
from trainer.wandb.request import Patience, UploadRequest

#: What the process and wandb have to say, in the attempt's folder.
LOG = "wandb.log"
#: Beyond `Patience.flush_s`, for the process's own end, before it is killed.
_MARGIN_S = 1.0
#: A killed process is gone within milliseconds, unless it waits for a disk.
_END_S = 5.0


class Word(NamedTuple):
    """One line from the process. `live`: it has a connection; `lost`: it has none; `over`: it will send nothing."""

    state: Literal["live", "lost", "over"]
    sentence: str


@contextlib.contextmanager
def beside(
    job: Job,
    training: Mapping[str, Any],
    environ: Mapping[str, str],
    say: Callable[[str], None],
    *,
    patience: Patience | None = None,
) -> Iterator[None]:
    """Send the slot's curves for as long as the block lasts, where `environ` asks for it. Nothing of it ever raises."""
    with contextlib.ExitStack() as stack:
        process = _begin(job, training, environ, say, patience or Patience(), stack)
        try:
            yield
        finally:
            if process is not None:
                process.end(end_of_job(environ))


def _begin(
    job: Job,
    training: Mapping[str, Any],
    environ: Mapping[str, str],
    say: Callable[[str], None],
    patience: Patience,
    stack: contextlib.ExitStack,
) -> LiveProcess | None:
    mode = wandb_mode(environ)
    if mode not in WANDB_MODES:
        say(f"W&B: WANDB_MODE is {mode!r}, and none of {', '.join(WANDB_MODES)}; no curves are sent")
    if mode not in {"online", "offline"}:
        return None
    try:
        there = destination.of_job(job, environ)
        destination.write_down(there, job.attempt_dir)
        if mode == "offline":
            return None
        folder = stack.enter_context(HeldFolder("anchorleg-wandb", job.scratch or Path(tempfile.gettempdir())))
        return LiveProcess(UploadRequest.of(job, folder, there, training, patience), environ, say)
    except (OSError, RuntimeError, ValueError) as error:
        say(f"W&B: no curves are sent: {error}; the training goes on")
        return None


def _start(request: Path, environ: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """The process, in a session of its own. Until it ignores the hand-over signals itself, they are blocked in it."""
    environment = {
        **environ,
        **python_path(),
        "OMP_NUM_THREADS": "1",
        "GOMAXPROCS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-P", "-m", "trainer.wandb.program", str(request)]
    with open(log, "ab") as errors, hand_over_blocked():
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )


def end_children(pid: int) -> None:
    """Kill the children of `pid`: wandb's service, which leads a session of its own. Linux; elsewhere it sees its
    parent's end by itself, as it does here.
    """
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                os.kill(int(path.parent.name), signal.SIGKILL)


class LiveProcess:
    """Runs `trainer.wandb.program` on `request`, whose folder is the caller's. Errors: OSError, RuntimeError where it
    cannot be started.

    `start`: starts it. `end_children`: kills those of a pid.
    """

    def __init__(
        self,
        request: UploadRequest,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        *,
        start: Callable[[Path, Mapping[str, str], Path], subprocess.Popen[bytes]] = _start,
        end_children: Callable[[int], None] = end_children,
    ) -> None:
        self._request = request
        self._say = say
        self._state = ""
        self._is_ending = False
        self._end_children = end_children
        self._process = start(request.write(), environ, request.job.attempt_dir / LOG)
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        self._lifeline = self._process.stdin
        self._ear = threading.Thread(target=self._hear, daemon=True)
        try:
            self._ear.start()
        except RuntimeError:  # the system's limit of processes counts threads too
            self._kill()
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def end(self, end_at: float | None) -> None:
        """Let it send what is under way, where it has a connection and time is left (`end_at`, unix seconds: when the
        job is killed); then there is none of it any more.
        """
        self._is_ending = True
        flush_s = self._request.patience.flush_s + _MARGIN_S
        if end_at is not None:
            flush_s = min(flush_s, (end_at - time.time()) / 2)
        with contextlib.suppress(OSError):
            self._lifeline.close()
        ended = self._process.poll() is not None
        if not ended and self._state not in {"lost", "over"} and flush_s > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(flush_s)
                ended = True
        gave_up = self._state == "over" and (self._process.poll() or 0) >= 0  # it has said so, and why
        self._kill()
        self._ear.join(_END_S)
        if not gave_up and (not ended or self._process.returncode != 0):
            self._tell("not all curves were sent; the next job sends the rest, and so does `trainer wandb`")

    def _kill(self) -> None:
        if self._process.poll() is None:  # else its number may be somebody else's by now, with children of their own
            self._end_children(self._process.pid)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    def _hear(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        with self._process.stdout as out:
            for line in out:
                try:
                    word = Word(*json.loads(line))
                except (ValueError, TypeError):  # cut off by a kill
                    continue
                self._state = word.state
                self._tell(word.sentence)
        code = self._process.wait()
        if code < 0 and not self._is_ending:
            self._state = "over"
            name = signal.Signals(-code).name
            self._tell(f"the process that sends the curves was killed by {name}; the training goes on without it")

    def _tell(self, sentence: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a job's output that is gone is not this thread's to report
            self._say(f"W&B: {sentence}")


def end_of_job(environ: Mapping[str, str]) -> float | None:
    """Unix seconds at which the scheduler kills the job, where it says so."""
    for name in ("ANCHORLEG_END_TIME", "SLURM_JOB_END_TIME"):
        if environ.get(name, "").isdigit():
            return float(environ[name])
    return None
