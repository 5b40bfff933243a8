"""`python handing_over.py STEPS train …`: `trainer train …`, which asks itself to hand over at that vector step.

`STEPS:SIGTERM` sends itself another signal then, `STEPS:SIGKILL:0.01` so many seconds later, wherever it is at work; it
makes `MORE` vector steps until then at most.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from threading import Thread
from typing import Any

from trainer.__main__ import run
from trainer.envs.vector import VectorEnv

MORE = 5


def signal_at(steps: int, number: int = signal.SIGUSR2, later_s: float = 0.0) -> None:
    """Of all its environments together; an evaluation's do not count."""

    def send() -> None:
        time.sleep(later_s)
        os.kill(os.getpid(), number)

    made, step_async, sending = 0, VectorEnv.step_async, Thread(target=send, daemon=True)

    def counted(self: VectorEnv, actions: Any, **more: Any) -> None:
        nonlocal made
        made += 1
        if made == steps:
            sending.start() if later_s else send()
        if made == steps + MORE and later_s:
            sending.join()
        step_async(self, actions, **more)

    VectorEnv.step_async = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    at, *of = sys.argv.pop(1).split(":")
    signal_at(int(at), *(signal.Signals[name] for name in of[:1]), *map(float, of[1:]))
    run()
