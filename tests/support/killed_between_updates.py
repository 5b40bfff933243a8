"""`python killed_between_updates.py '[{"45": "SIGKILL"}, {}]' train …`: `trainer train …`, and a signal to itself.

Each object is for one attempt, by its number (that of the job; alone it is the first). It maps an update that the
attempt comes to, counted from 1, to the signal that it gets just before it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from trainer.algorithms.common.offpolicy import OffPolicy
from trainer.algorithms.common.onpolicy import OnPolicy
from trainer.cli import main


def hurt(signals: dict[str, str]) -> None:
    """From now on each update may be the last."""
    made = 0

    def hurting(kind: Any, place_of: Callable[[Any], str]) -> None:
        update = kind.update

        def counted(self: Any) -> Any:
            nonlocal made
            made += 1
            if str(made) in signals:
                print(f"{signals[str(made)]} before update {made} of this attempt, {place_of(self)}", flush=True)
                os.kill(os.getpid(), signal.Signals[signals[str(made)]])
            return update(self)

        kind.update = counted

    hurting(OnPolicy, lambda it: f"{it._at} of {len(it._lesson)} steps into epoch {it._epoch}")
    hurting(OffPolicy, lambda it: f"{it.owed} of them owed")


if __name__ == "__main__":
    attempts = json.loads(sys.argv.pop(1))
    number = int(os.environ.get("ANCHORLEG_ATTEMPT", "0"))
    hurt(attempts[number] if number < len(attempts) else {})
    main()
