"""`python launch_ranks.py RUN_DIR CODE`: two ranks of a job run the Python code, which knows its `rank`; how it ended.

What `trainer train --ranks 2` does, without a training.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from anchorleg.job import Job
from trainer.machine.launching import launch

PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from trainer.machine.launching import leave_code, place_of
place, attempt_dir = place_of(os.environ), Path(os.environ["ANCHORLEG_ATTEMPT_DIR"])
rank, launcher = place.rank, int(os.environ["LAUNCHER"])
"""

if __name__ == "__main__":
    command = [sys.executable, "-c", PRELUDE + sys.argv[2]]
    os.environ["LAUNCHER"] = str(os.getpid())
    code = launch(Job(Path(sys.argv[1]), 0, 0), 2, os.environ, command, print)
    print(f"ended with {code}", flush=True)
