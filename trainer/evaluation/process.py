"""One evaluation in a process of its own, seen from the loop, and what became of a slot's evaluations.

The process plays on the CPU with one torch thread, whatever the learner computes on: a dozen observations are soon
through a policy, and a second program on a GPU would take its memory and its time. So the numbers are those of
`trainer evaluate --device cpu`, bit for bit. One line of JSON on its standard input asks; it answers in lines of JSON:
how far it is, and at last the result. It bears the signals that ask a job to hand over (scancel signals every process):
the loop ends it. It ends by itself when its standard input closes, so also when the learner is killed.

A run's state names the steps whose evaluation is wanted (they depend on the step count alone). Made is what
`evaluations.jsonl` has; `evaluating.jsonl`, beside it in each attempt's folder, says what was begun and what was given
up. Whatever is wanted and neither made nor given up is pending, and the slot's next attempt makes it. What an attempt
did with checkpoints that no longer count, because the slot went back before them, says nothing of those that do.
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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from anchorleg.errors import NamedError
from anchorleg.output import set_aside
from anchorleg.signals import HAND_OVER_SIGNALS, bear_hand_over, python_path
from trainer.envs.foreign import leave
from trainer.errors import TrainerError
from trainer.evaluation.protocol import Evaluation
from trainer.history.read import EVALUATIONS, evaluators, lines, read_evaluations
from trainer.machine.processes import be_expendable, hand_over_blocked

#: It says how far it is every few seconds once it plays; before, it reads torch and the simulator, which takes a cold
#: network folder a minute or two. After this long it hangs.
SILENCE_S = 600.0
#: Silence is the time between looks, each of them counted as this much at most: while a whole job is suspended nobody
#: looks, and else the loop looks far more often.
_LOOK_S = 10.0
#: A killed process is gone within milliseconds, unless it waits for a disk.
_END_S = 5.0
#: As in `trainer.machine.device`: a worker with fewer environments costs more in messages than its stepping saves.
_ENVS_A_WORKER = 2
#: It says how far it is this often.
_BEAT_S = 2.0
#: Rows `{"step", "begun": true}` and `{"step", "left_out": why}` of one attempt.
EVALUATING = "evaluating.jsonl"


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
    """Runs `main` on `request`. Errors: EvaluatorError where it cannot be started."""

    def __init__(self, request: EvaluationRequest) -> None:
        self.words = ""
        self._result: Evaluation | None = None
        self._heard, self._silent_s, self._looked_at = 0, 0.0, time.monotonic()
        environment = {**os.environ, **python_path(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-P", "-m", __name__]
        try:
            self._out, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - its own
            with hand_over_blocked():  # until it bears those signals itself
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=self._out, stderr=self._errors, env=environment
                )
        except OSError as error:
            raise EvaluatorError("evaluator.not-started", why=error.strerror) from error
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        self._lifeline = self._process.stdin
        with contextlib.suppress(OSError):  # it is dead already, and `poll` says of what
            self._lifeline.write(json.dumps(asdict(request), default=os.fspath).encode() + b"\n")
            self._lifeline.flush()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def poll(self) -> Evaluation | None:
        """The result; None: not yet. Errors: EvaluatorError."""
        code = self._process.poll()  # before it is heard: what it has said by then is all
        self._hear()
        if code is None:
            now = time.monotonic()
            self._silent_s += min(now - self._looked_at, _LOOK_S)
            self._looked_at = now
            if self._silent_s < SILENCE_S:
                return None
            self.end()
            raise EvaluatorError("evaluator.silent", minutes=SILENCE_S / 60)
        said = os.pread(self._errors.fileno(), 2**16, max(0, os.fstat(self._errors.fileno()).st_size - 2**16))
        self._close()
        if self._result is not None:
            return self._result
        words = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        raise EvaluatorError("evaluator.ended", how=f"{how}: {words[-1]}" if words else how)

    def wait(self, seconds: float) -> None:
        """Until it has ended, and no longer than that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def end(self) -> None:
        """Kill it. Its workers see their sockets close."""
        self._process.kill()
        self.wait(_END_S)
        self._close()

    def _close(self) -> None:
        for file in (self._lifeline, self._out, self._errors):
            with contextlib.suppress(OSError):  # a pipe that nobody reads any more
                file.close()

    def _hear(self) -> None:
        """Take whole lines in. Not by its own place in the file, which is the writer's."""
        more = os.pread(self._out.fileno(), 2**24, self._heard).rpartition(b"\n")[0]
        if more:
            self._heard, self._silent_s = self._heard + len(more) + 1, 0.0
        for line in more.splitlines():
            message = json.loads(line)
            if "result" in message:
                self._result = Evaluation.from_json(message["result"])
            else:
                done, total = message["episodes"]
                self.words = f"{done} of {total} episodes" if total else ""


@dataclass(frozen=True)
class Past:
    """What a slot's files say. `unfinished`: step → how many attempts began its evaluation and did not end it."""

    evaluations: tuple[Mapping[str, Any], ...]
    left_out: frozenset[int]
    unfinished: Mapping[int, int]

    def pending(self, wanted: Iterable[int]) -> tuple[int, ...]:
        """Those of the `wanted` steps whose evaluation is still to be made, in their order."""
        made = {row["step"] for row in self.evaluations}
        return tuple(step for step in wanted if step not in made and step not in self.left_out)


def read_past(slot_dir: Path) -> Past:
    """All attempts that count, together. Errors: OSError, ValueError where one's beginning cannot be read."""
    unfinished: Counter[int] = Counter()
    left_out: set[int] = set()
    for attempt, until in evaluators(slot_dir):
        folder = slot_dir / "attempts" / str(attempt)
        rows = [row for row in lines(folder / EVALUATING) if until is None or row["step"] <= until]
        if not rows:
            continue
        ended = {row["step"] for row in lines(folder / EVALUATIONS)}
        unfinished.update({row["step"] for row in rows if "begun" in row} - ended)
        left_out |= {row["step"] for row in rows if "left_out" in row}
    return Past(tuple(read_evaluations(slot_dir)), frozenset(left_out), unfinished)


def main() -> int:
    """The process: evaluate what standard input asks for. Returns the exit code; what went wrong is a sentence on
    standard error.
    """
    bear_hand_over()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HAND_OVER_SIGNALS)
    with set_aside() as out:
        request = json.loads(sys.stdin.readline())
        with contextlib.suppress(OSError):
            os.nice(request["nice"])
        be_expendable()
        threading.Thread(target=_end_with_the_learner, daemon=True).start()
        from trainer.evaluation.playable import evaluate_checkpoint

        episodes, said_at = (0, 0), float("-inf")

        def say(message: Mapping[str, Any]) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        def progress(done: int, total: int) -> None:
            nonlocal episodes
            episodes = (done, total)

        def beat() -> bool:
            """Say how far it is, if it is time. False: nobody interrupts."""
            nonlocal said_at
            if (now := time.monotonic()) - said_at >= _BEAT_S:
                said_at = now
                say({"episodes": episodes})
            return False

        try:
            played = evaluate_checkpoint(
                Path(request["checkpoint"]),
                goals=request["goals"],
                unseen_goals=request["unseen_goals"],
                beside=request["averaged"],
                goal_seed=None,
                device="cpu",
                threads=1,
                num_workers=request["workers"],
                goals_dir=Path(request["goals_dir"]),
                progress=progress,
                interrupted=beat,
            )
        except TrainerError as error:
            print(error, file=sys.stderr)
            return 1
        for note in played.notes:
            print(note, file=sys.stderr)
        say({"episodes": episodes})
        say({"result": played.evaluation.as_json()})
    return 0


def _end_with_the_learner() -> None:
    # Not through `sys.stdin`: a thread that waits in it would make the interpreter's own end a fatal error.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    leave(main())
