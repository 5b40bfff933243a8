"""`python handing_over.py STEPS train …`: `trainer train …`, which asks itself to hand over at that vector step."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from trainer.cli import main
from trainer.envs.vector import VectorEnv


def hand_over_at(steps: int) -> None:
    """Of all its environments together; an evaluation's do not count."""
    made, step_async = 0, VectorEnv.step_async

    def counted(self: VectorEnv, actions: Any, **more: Any) -> None:
        nonlocal made
        made += 1
        if made == steps:
            os.kill(os.getpid(), signal.SIGUSR2)
        step_async(self, actions, **more)

    VectorEnv.step_async = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    hand_over_at(int(sys.argv.pop(1)))
    main()
