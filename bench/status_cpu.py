"""What one `orchestrator status` costs: CPU (user + system) of the whole process, at four slots.

`python bench/status_cpu.py [REPEATS]` makes a run of four slots in the middle of its life (bench/tick.py's) and asks
for its status again and again, beside a Python interpreter that does nothing and `orchestrator --help`. Writes
status_cpu.csv, and says what costs more than its budget: on a quiet machine of our days nothing may.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import figures
from tick import ROOT, Memory, make_run

SLOTS = 4
REPEATS = 15
#: CPU seconds for a whole command. Who asks again and again on a login node that is shared must not be felt there; the
#: interpreter and pydantic are half of it.
BUDGET_S = {"orchestrator --help": 0.25, "orchestrator status": 0.4, "orchestrator status --json": 0.4}


def cpu_of(command: list[str], env: dict[str, str], folder: Path) -> tuple[float, float]:
    """(CPU seconds, seconds by the clock) of one process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=60)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, took


def main() -> None:
    """Measure, print, write."""
    repeats = figures.number(1, REPEATS)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        controller = make_run(folder, SLOTS, Memory())
        controller.tick()
        (folder / "cluster_config.json").write_text(
            '{"run_name": "many", "run_dir": "run", "executor": "slurm", "command": ["true"], "slots": 4}'
        )
        env = {**os.environ, "XDG_STATE_HOME": name, "PYTHONPATH": str(ROOT)}
        ours = [sys.executable, "-P", "-m", "orchestrator"]
        commands = {
            "python, doing nothing": [sys.executable, "-c", ""],
            "orchestrator --help": [*ours, "--help"],
            "orchestrator status": [*ours, "status"],
            "orchestrator status --json": [*ours, "status", "--json"],
        }
        ways = {what: partial(cpu_of, command, env, folder) for what, command in commands.items()}
        seen = figures.by_turns(ways, repeats, warm=0)
        for what, times in seen.items():
            cpu, took = (statistics.median(column) for column in zip(*times, strict=True))
            worst = max(time_[0] for time_ in times)
            rows.append([what, repeats, f"{cpu:.3f}", f"{worst:.3f}", f"{took:.3f}"])
            print(f"{what}: {cpu:.3f} s of CPU (worst {worst:.3f} s), {took:.3f} s by the clock")
            if cpu > (budget := BUDGET_S.get(what, cpu)):
                print(f"{what} costs more than its budget of {budget} s: was this machine quiet?")
    if len(sys.argv) > 1:
        return
    figures.save("status_cpu", ["what", "count", "cpu_s", "worst_s", "clock_s"], rows)


if __name__ == "__main__":
    main()
