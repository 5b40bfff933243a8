"""Counts to a total, over as many jobs as it takes. Standard library only: this is the whole job contract."""

import json
import os
import sys
import time
from pathlib import Path

total = int(sys.argv[1])
attempt = Path(os.environ["ANCHORLEG_ATTEMPT_DIR"])
parent = os.environ["ANCHORLEG_PARENT"]
n = json.loads((Path(parent) / "state.json").read_text())["n"] if parent else 0

while n < total and not os.path.exists(os.environ["ANCHORLEG_HANDOVER_FILE"]):
    n += 1
    time.sleep(0.05)

unfinished = attempt / "checkpoints" / "unfinished"
unfinished.mkdir(parents=True)
(unfinished / "state.json").write_text(json.dumps({"n": n}))
unfinished.rename(attempt / "checkpoints" / str(n))
sys.exit(0 if n == total else 75)
