"""The program of one evaluation: `python -m trainer.evaluation.program`, started by `trainer.evaluation.process`.

One line of JSON on its standard input asks (`EvaluationRequest`). It answers in lines of JSON on its standard output:
how far it is, and at last the result. What went wrong goes to standard error, in one sentence where it is known.

It bears the signals that ask a job to hand over (scancel signals every process): the loop ends it. It ends by itself
when its standard input closes, so also when the learner is killed; its own workers end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from anchorleg.output import set_aside
from anchorleg.signals import HAND_OVER_SIGNALS, bear_hand_over
from trainer.envs.foreign import leave
from trainer.machine.processes import be_expendable

#: It says how far it is this often.
_BEAT_S = 2.0


def main() -> int:
    """Evaluate what standard input asks for. Returns the exit code."""
    bear_hand_over()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HAND_OVER_SIGNALS)
    with set_aside() as out:
        return _evaluate(out)


def _evaluate(out: TextIO) -> int:
    """What is asked for, told on `out`. The exit code."""
    request = json.loads(sys.stdin.readline())
    with contextlib.suppress(OSError):
        os.nice(request["nice"])
    be_expendable()
    threading.Thread(target=_end_with_the_learner, daemon=True).start()

    from trainer.errors import TrainerError
    from trainer.evaluation.checkpoints import evaluate_checkpoint

    voice = EvaluationReporter(out)
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
            progress=voice.progress,
            interrupted=voice.beat,
        )
    except TrainerError as error:
        print(error, file=sys.stderr)
        return 1
    for note in played.notes:
        print(note, file=sys.stderr)
    voice.tell_episodes()
    voice.say({"result": played.evaluation.as_json()})
    return 0


class EvaluationReporter:
    """Lines of JSON to the learner, the small talk not too often."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._episodes = (0, 0)
        self._said_at = float("-inf")

    def say(self, message: dict[str, Any]) -> None:
        """One line."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def progress(self, done: int, total: int) -> None:
        """Remember how far it is."""
        self._episodes = (done, total)

    def beat(self) -> bool:
        """Say how far it is, if it is time. False: nobody interrupts."""
        now = time.monotonic()
        if now - self._said_at >= _BEAT_S:
            self._said_at = now
            self.tell_episodes()
        return False

    def tell_episodes(self) -> None:
        """Say how far it is."""
        self.say({"episodes": self._episodes})


def _end_with_the_learner() -> None:
    # Not through `sys.stdin`: a thread that waits in it would make the interpreter's own end a fatal error.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    leave(main())
