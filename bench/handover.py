"""Idle time between two jobs of a slot on the local executor, beside the least that a restart can cost.

`python bench/handover.py [HAND_OVERS]` keeps a program that counts going over many short jobs and prints, for the time
from one job's last act (`exit.json`) to the next one's first (`claim`), median, 90th percentile and worst; then the
same for a bare loop that starts a Python interpreter again and again, the floor. Writes handover.csv.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures

from anchorleg.job import attempt_numbers

ROOT = Path(__file__).resolve().parents[1]
JOB_S = 1.0


def relay_gaps(hand_overs: int) -> list[float]:
    """Seconds from each job's end to its successor's claim."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:  # a supervisor may write a last word
        folder = Path(name)
        (folder / "count.py").write_text((ROOT / "examples/foreign/count.py").read_text())
        config = {
            "run_name": "bench",
            "executor": "local",
            "lead_seconds": 5,
            "slurm": {"time_limit": "0:01:00"},
            "training": {"max_runtime_seconds": JOB_S},
            "command": [sys.executable, "count.py", str(int((hand_overs + 0.5) * JOB_S / 0.05))],
        }
        (folder / "cluster_config.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "orchestrator", "start"]
        env = {**os.environ, "XDG_STATE_HOME": name, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL, timeout=60 + 5 * hand_overs)
        slot = folder / "runs/bench/slots/0"
        ends: list[float] = []
        claims: list[float] = []
        for number in attempt_numbers(slot):
            attempt = slot / "attempts" / str(number)
            claims.append(json.loads((attempt / "claim").read_text())["at"])
            ends.append(json.loads((attempt / "exit.json").read_text())["at"])
    return [claim - end for end, claim in zip(ends[:-1], claims[1:], strict=True)]


def restart() -> None:
    """An interpreter that does nothing: no relay can be shorter."""
    subprocess.run([sys.executable, "-c", ""], check=True, timeout=60)


def main() -> None:
    """Measure both in one run and print them."""
    hand_overs = figures.number(1, 20)
    restarts = [figures.timed(restart, clock=time.perf_counter) for _ in range(hand_overs)]
    rows = []
    for name, gaps in (("relay", relay_gaps(hand_overs)), ("bare restart", restarts)):
        rows.append([name, len(gaps), *(f"{value:.3f}" for value in figures.late(gaps))])
        print("{}, {}: median {} s, 90 % {} s, worst {} s".format(*rows[-1]))
    figures.save("handover", ["what", "count", "median_s", "p90_s", "worst_s"], rows)


if __name__ == "__main__":
    main()
