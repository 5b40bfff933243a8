"""One job of a chain: steps of 0.05 s for two to five seconds, each one's time noted in a log, then save and end.

`python steps.py JOBS LOG`: the chain is done after so many jobs. Kept alive by Anchorleg it knows the job contract;
alone it keeps its count in a file of the current folder. Standard library only.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

BEGAN = time.time()
jobs, name = int(sys.argv[1]), sys.argv[2]
job = os.environ.get("SLURM_JOB_ID", "?")
attempt = os.environ.get("ANCHORLEG_ATTEMPT_DIR")
parent = os.environ.get("ANCHORLEG_PARENT") if attempt else "."
state = Path(parent, "state.json") if parent else None
n = 1 + (json.loads(state.read_text())["n"] if state is not None and state.exists() else 0)

# Of no fixed length: a chain that falls into step with the scheduler's rounds would measure the step, not the way.
steps = random.randint(40, 100)
with open(f"{name}-{os.environ.get('ANCHORLEG_SLOT', '0')}.log", "a", buffering=1) as log:
    log.write(f"{BEGAN:.4f} {job} begin\n")
    for _ in range(steps):
        time.sleep(0.05)
        log.write(f"{time.time():.4f} {job} step\n")

folder = Path(attempt, "checkpoints", "unfinished") if attempt else Path("unfinished")
folder.mkdir(parents=True, exist_ok=True)
(folder / "state.json").write_text(json.dumps({"n": n}))
if attempt:
    folder.rename(folder.with_name(str(n)))
else:
    os.replace(folder / "state.json", "state.json")
sys.exit(75 if attempt and n < jobs else 0)
