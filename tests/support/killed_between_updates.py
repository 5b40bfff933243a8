"""`python killed_between_updates.py '[{"45": "SIGKILL"}, {}]' train …`: `trainer train …`, and a signal to itself.

Each object is for one attempt, by its number (that of the job; alone it is the first). It maps an update that the
attempt comes to, counted from 1, to the signal that it gets just before it; with `--ranks` rank 0 gets it, or the rank
that is said: `"1 SIGKILL"`. `"PAUSE"` is no signal: it waits there until it is asked to hand over.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.algorithms.a2c import A2C
from trainer.algorithms.drqv2 import DrQv2
from trainer.algorithms.mtsac import MTSAC
from trainer.algorithms.ppo import PPO
from trainer.algorithms.sac import SAC
from trainer.algorithms.td3 import TD3
from trainer.cli import main


def pause() -> None:
    """Until it is asked to hand over; `paused` in the attempt's folder says that it waits."""
    Path(os.environ["ANCHORLEG_ATTEMPT_DIR"], "paused").touch()
    while not Path(os.environ["ANCHORLEG_HANDOVER_FILE"]).exists():
        time.sleep(0.05)


def hurt(signals: dict[str, str]) -> None:
    """From now on each update may be the last."""
    made = 0

    def hurting(kind: Any, how: str, place_of: Callable[[Any], str]) -> None:
        update = getattr(kind, how)

        def counted(self: Any, *words: Any) -> Any:
            nonlocal made
            made += 1
            *rank, name = signals.get(str(made), "").split() or [""]
            if name and (rank or ["0"]) == [os.environ.get("ANCHORLEG_RANK", os.environ.get("SLURM_PROCID", "0"))]:
                print(f"{name} before update {made} of this attempt, {place_of(self)}", flush=True)
                os.kill(os.getpid(), signal.Signals[name]) if name != "PAUSE" else pause()
            return update(self, *words)

        setattr(kind, how, counted)

    def in_rollout(it: Any) -> str:
        steps = len(next(iter(it.rollouts.shards.values())).lesson)
        return f"{it.rollouts.at} of {steps} steps into epoch {it.rollouts.epoch}"

    for kind in (PPO, A2C):
        hurting(kind, "update", in_rollout)
    for kind in (SAC, TD3, DrQv2, MTSAC):  # also with another rank's batch
        hurting(kind, "learn", lambda it: f"{it.owed} of them owed")


if __name__ == "__main__":
    attempts = json.loads(sys.argv.pop(1))
    number = int(os.environ.get("ANCHORLEG_ATTEMPT", "0")) if len(attempts) > 1 else 0
    hurt(attempts[number] if number < len(attempts) else {})
    main()
