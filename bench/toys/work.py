"""Report a step every 3 s, as the trainer does, until somebody asks for a hand-over. Standard library only."""

import json
import os
import sys
import time
from pathlib import Path

here = Path(os.environ["ANCHORLEG_ATTEMPT_DIR"])
n = 0
while not os.path.exists(os.environ["ANCHORLEG_HANDOVER_FILE"]):
    n += 3
    value = {"step": n, "total": 1_000_000, "checkpoint_step": 0, "at": time.time(), "steps_per_s": 1.0}
    (here / "progress.tmp").write_text(json.dumps(value))
    os.replace(here / "progress.tmp", here / "progress.json")
    time.sleep(3)
sys.exit(75)
