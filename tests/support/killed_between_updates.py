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

from trainer.algorithms.common.offpolicy import OffPolicy
from trainer.algorithms.common.onpolicy import OnPolicy
from trainer.algorithms.common.sharded import Sharded
from trainer.cli import main


def pause() -> None:
    """Until it is asked to hand over; `paused` in the attempt's folder says that it waits."""
    Path(os.environ["ANCHORLEG_ATTEMPT_DIR"], "paused").touch()
    while not Path(os.environ["ANCHORLEG_HANDOVER_FILE"]).exists():
        time.sleep(0.05)


def hurt(signals: dict[str, str]) -> None:
    """From now on each update may be the last."""
    made = 0

    def hurting(kind: Any, place_of: Callable[[Any], str], how: str = "update") -> None:
        update = getattr(kind, how)

        def counted(self: Any) -> Any:
            nonlocal made
            made += 1
            *rank, name = signals.get(str(made), "").split() or [""]
            if name and (rank or ["0"]) == [os.environ.get("ANCHORLEG_RANK", os.environ.get("SLURM_PROCID", "0"))]:
                print(f"{name} before update {made} of this attempt, {place_of(self)}", flush=True)
                os.kill(os.getpid(), signal.Signals[name]) if name != "PAUSE" else pause()
            return update(self)

        setattr(kind, how, counted)

    hurting(OnPolicy, lambda it: f"{it._at} of {len(it._lesson)} steps into epoch {it._epoch}")
    hurting(Sharded, lambda it: f"{it._one._at} of {len(it._one._lesson)} steps into epoch {it._one._epoch}")
    hurting(OffPolicy, lambda it: f"{it.owed} of them owed")
    hurting(OffPolicy, lambda _: "with another rank's batch", "assist")


if __name__ == "__main__":
    attempts = json.loads(sys.argv.pop(1))
    number = int(os.environ.get("ANCHORLEG_ATTEMPT", "0")) if len(attempts) > 1 else 0
    hurt(attempts[number] if number < len(attempts) else {})
    main()
