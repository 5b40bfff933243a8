"""Do argv[1] steps of 0.05 s, note each one's time in steps.log, save, end: the same work for every way to chain jobs.

`python steps.py STEPS_A_JOB TOTAL`. Kept alive by Anchorleg it knows the job contract; alone it keeps its count in a
file of the current folder. Standard library only.
"""

import json
import os
import sys
import time
from pathlib import Path

BEGAN = time.time()
of_job, total = int(sys.argv[1]), int(sys.argv[2])
job = os.environ.get("SLURM_JOB_ID", "?")
attempt = os.environ.get("ANCHORLEG_ATTEMPT_DIR")
parent = os.environ.get("ANCHORLEG_PARENT") if attempt else "."
state = Path(parent, "state.json") if parent else None
n = json.loads(state.read_text())["n"] if state is not None and state.exists() else 0

with open("steps.log", "a", buffering=1) as log:
    log.write(f"{BEGAN:.4f} {job} begin\n")
    for _ in range(min(of_job, total - n)):
        time.sleep(0.05)
        n += 1
        log.write(f"{time.time():.4f} {job} step\n")

folder = Path(attempt, "checkpoints", "unfinished") if attempt else Path("unfinished")
folder.mkdir(parents=True, exist_ok=True)
(folder / "state.json").write_text(json.dumps({"n": n}))
if attempt:
    folder.rename(folder.with_name(str(n)))
else:
    os.replace(folder / "state.json", "state.json")
sys.exit(75 if attempt and n < total else 0)
