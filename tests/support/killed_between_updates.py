"""`python killed_between_updates.py '[{"45": "SIGKILL"}, {}]' train …`: `trainer train …`, and a signal to itself.

Each object is for one attempt, by its number (that of the job; alone it is the first). It maps an update that the
attempt comes to, counted from 1, to the signal that it gets just before it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from trainer.algorithms.common.onpolicy import OnPolicy
from trainer.cli import main


def hurt(signals: dict[str, str]) -> None:
    """From now on each update may be the last."""
    made, update = 0, OnPolicy.update

    def counted(self: OnPolicy) -> Any:
        nonlocal made
        made += 1
        if str(made) in signals:
            place = f"update {made} of this attempt, {self._at} of {len(self._lesson)} steps into epoch {self._epoch}"
            print(f"{signals[str(made)]} before {place}", flush=True)
            os.kill(os.getpid(), signal.Signals[signals[str(made)]])
        return update(self)

    OnPolicy.update = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    attempts = json.loads(sys.argv.pop(1))
    number = int(os.environ.get("ANCHORLEG_ATTEMPT", "0"))
    hurt(attempts[number] if number < len(attempts) else {})
    main()
