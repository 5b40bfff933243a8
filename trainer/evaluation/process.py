"""One evaluation in a process of its own, seen from the loop.

It plays on the CPU with one torch thread, whatever the learner computes on: a dozen observations are soon through a
policy, and a second program on a GPU would take its memory and its time. So the numbers are those of
`trainer evaluate --device cpu`, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from anchorleg.errors import NamedError
from anchorleg.signals import python_path
from trainer.evaluation.protocol import Evaluation
from trainer.machine.processes import hand_over_blocked

#: It says how far it is every few seconds once it plays; before, it reads torch and the simulator, which takes a cold
#: network folder a minute or two. After this long it hangs.
SILENCE_S = 600.0
#: Silence is the time between looks, each of them counted as this much at most: while a whole job is suspended nobody
#: looks, and else the loop looks far more often.
_LOOK_S = 10.0
#: A killed process is gone within milliseconds, unless it waits for a disk.
_END_S = 5.0
#: Its workers may hold its standard error open for the moment that they take to end.
_LAST_WORDS_S = 1.0
#: As in `trainer.machine.device`: a worker with fewer environments costs more in messages than its stepping saves.
_ENVS_A_WORKER = 2


class EvaluatorError(NamedError):
    """An evaluation came to nothing, and how; the sentence goes into another one."""


@dataclass(frozen=True)
class EvaluationRequest:
    """What is to be evaluated: the nets of `checkpoint`, on `goals` goals a task, and `unseen_goals` more that were not
    trained on. `averaged`: the moving average too, on the same goals. `goals_dir` caches goal tables.

    `workers` step the environments; 0: the process itself. `nice` is added to the trainer's.
    """

    checkpoint: Path
    goals: int
    goals_dir: Path
    workers: int
    nice: int = 0
    unseen_goals: int = 0
    averaged: bool = False

    def as_line(self) -> bytes:
        """One line of JSON, as `trainer.evaluation.program` reads it."""
        return json.dumps(asdict(self), default=os.fspath).encode() + b"\n"


class Running(Protocol):
    """An evaluation that is under way."""

    @property
    def words(self) -> str:
        """How far it is; empty where that is not known."""

    def poll(self) -> Evaluation | None:
        """The result; None: not yet. Errors: EvaluatorError where there will be none."""

    def wait(self, seconds: float) -> None:
        """Until it has ended, and no longer than that."""

    def end(self) -> None:
        """Stop it, if it still runs."""


Begin = Callable[[EvaluationRequest], Running]


def spare_workers(cores: int, busy: int, lanes: int) -> int:
    """Worker processes (or stepping threads) of an evaluation of `lanes` environments: the cores that are not `busy`.

    0, which is one core at low priority, where fewer than two are spare.
    """
    count = min(cores - busy, lanes // _ENVS_A_WORKER)
    return count if count > 1 else 0


class EvaluatorProcess:
    """Runs `trainer.evaluation.program` on `request`. Errors: EvaluatorError where it cannot be started."""

    def __init__(self, request: EvaluationRequest) -> None:
        self._result: Evaluation | None = None
        self._episodes = (0, 0)
        self._last_words = ""
        self._silent_s = 0.0
        self._looked_at = time.monotonic()
        self._ended = threading.Event()
        self._process = _start()
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        self._lifeline = self._process.stdin
        with contextlib.suppress(OSError):  # it is dead already, and `poll` says of what
            self._lifeline.write(request.as_line())
            self._lifeline.flush()
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        try:
            self._errors.start()
            threading.Thread(target=self._hear, daemon=True).start()
        except RuntimeError as error:  # the system's limit of processes counts threads too
            self._process.kill()
            self._process.wait(_END_S)
            raise EvaluatorError("evaluator.no-thread", why=error) from error

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def words(self) -> str:
        """`230 of 500 episodes`."""
        done, total = self._episodes
        return f"{done} of {total} episodes" if total else ""

    def poll(self) -> Evaluation | None:
        """The result; None: not yet. Errors: EvaluatorError."""
        if not self._ended.is_set():
            now = time.monotonic()
            self._silent_s += min(now - self._looked_at, _LOOK_S)
            self._looked_at = now
            if self._silent_s < SILENCE_S:
                return None
            self.end()
            raise EvaluatorError("evaluator.silent", minutes=SILENCE_S / 60)
        if self._result is not None:
            return self._result
        code = self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        raise EvaluatorError("evaluator.ended", how=how + (f": {self._last_words}" if self._last_words else ""))

    def wait(self, seconds: float) -> None:
        """Until it has ended, and no longer than that."""
        self._ended.wait(seconds)

    def end(self) -> None:
        """Kill it. Its workers see their sockets close."""
        self._process.kill()
        self._ended.wait(_END_S)

    def _hear(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        with self._process.stdout as out:
            for line in out:
                self._silent_s = 0.0
                if not line.endswith(b"\n"):
                    break  # cut off by a kill
                message = json.loads(line)
                if "result" in message:
                    self._result = Evaluation.from_json(message["result"])
                else:
                    done, total = message["episodes"]
                    self._episodes = (done, total)
        self._process.wait()
        with contextlib.suppress(OSError):
            self._lifeline.close()
        self._errors.join(_LAST_WORDS_S)
        self._ended.set()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - for the type checker
        with self._process.stderr as errors:
            for line in errors:
                self._last_words = line.decode(errors="replace").strip() or self._last_words


def _start() -> subprocess.Popen[bytes]:
    """The process. Until it bears the hand-over signals itself, they are blocked in it."""
    environment = {
        **os.environ,
        **python_path(),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-P", "-m", "trainer.evaluation.program"]
    try:
        with hand_over_blocked():
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
            )
    except OSError as error:
        raise EvaluatorError("evaluator.not-started", why=error.strerror) from error
