"""`python short_limits.py SECONDS train …`: `trainer train …`, where environments may take no longer for anything."""

from __future__ import annotations

import sys

from trainer.__main__ import run
from trainer.envs import foreign, suite, vector, workers

if __name__ == "__main__":
    limit_s = float(sys.argv.pop(1))
    foreign.CLOSE_S = vector.CLOSE_S = vector.HUNG_S = suite.BEGIN_S = workers.BEGIN_S = limit_s
    run()
