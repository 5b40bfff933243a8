"""What a controller costs the login node: its share of a core at four slots, on a real Slurm, at the default poll.

`python bench/controller_cpu.py [SECONDS]` starts a private cluster and, side by side, two runs of four jobs each that
report progress: one controller in the background (`start --via daemon`), one with its live table on a terminal. CPU
time is user + system of the controller and of all its ended children (squeue), from /proc/<pid>/stat. Writes
controller_cpu.csv. Two and a half minutes by default.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from slurm_cluster import SlurmCluster, throw_away  # noqa: E402
from slurm_conf import Layout  # noqa: E402

SLOTS = 4
#: Four polls of 30 s.
WATCH_S = 120.0
#: All jobs run and the start is over: what remains is what a controller does for days.
SETTLE_S = 15.0
COMMAND_S = 120.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process and of its children that have ended."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(word) for word in after_name[11:15]) / TICKS_PER_S


def controller_of(run_dir: Path) -> int:
    """The process of the newest owner."""
    newest = max((path for path in (run_dir / "lease").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    return int(json.loads(newest.read_text())["process"]["pid"])


@contextmanager
def a_run(cluster: SlurmCluster, folder: Path, *, live: bool) -> Iterator[int]:
    """A run whose jobs all run, and its controller's pid; stopped at the end."""
    folder.mkdir()
    shutil.copy(ROOT / "bench/toys/work.py", folder)
    config = {
        "run_name": folder.name,
        "executor": "slurm",
        "slots": SLOTS,
        "slurm": {"time_limit": "1:00:00", "gpus": 0, "cpus_per_task": 1},
        "command": [sys.executable, "work.py"],
    }
    (folder / "cluster_config.json").write_text(json.dumps(config))
    env = {**cluster.env(), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "-P", "-m", "orchestrator"]
    child, master = None, -1
    if live:
        master, slave = pty.openpty()
        child = subprocess.Popen([*command, "start"], cwd=folder, env=env, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        os.write(master, b"n\n")  # to the probe that a first start on a terminal offers
        threading.Thread(target=_drain, args=(master,), daemon=True).start()
    else:
        subprocess.run([*command, "start", "--via", "daemon"], cwd=folder, env=env, check=True, timeout=COMMAND_S)
    run_dir = folder / "runs" / folder.name
    try:
        claims = "slots/*/attempts/*/progress.json"
        cluster.wait_for(lambda: len(list(run_dir.glob(claims))) == SLOTS, "all jobs to run", COMMAND_S)
        yield controller_of(run_dir)
    finally:
        subprocess.run([*command, "stop", "--now"], cwd=folder, env=env, check=False, timeout=COMMAND_S)
        if child is not None:
            child.wait(COMMAND_S)
            os.close(master)


def _drain(master: int) -> None:
    with suppress(OSError):
        while os.read(master, 65536):
            pass


def main() -> None:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory(prefix="al-") as name, throw_away(Layout(nodes=2, gpus=0)) as cluster:
        quiet, shown = (a_run(cluster, Path(name) / what, live=what == "live") for what in ("detached", "live"))
        with quiet as detached, shown as live:
            time.sleep(SETTLE_S)
            pids = {"in the background": detached, "live table on a terminal": live}
            before, began = {what: cpu_s(pid) for what, pid in pids.items()}, time.monotonic()
            time.sleep(figures.number(1, WATCH_S))
            took = time.monotonic() - began
            used = {what: cpu_s(pid) - before[what] for what, pid in pids.items()}
    rows = []
    for what, seconds in used.items():
        rows.append([what, SLOTS, f"{took:.0f}", f"{seconds:.2f}", f"{100 * seconds / took:.2f}"])
        print(f"{what}: {seconds:.2f} s of CPU in {took:.0f} s: {100 * seconds / took:.2f} % of a core")
    if len(sys.argv) > 1:
        return
    figures.save("controller_cpu", ["controller", "slots", "seconds", "cpu_s", "percent_of_a_core"], rows)


if __name__ == "__main__":
    os.environ.pop("SLURM_CONF", None)
    main()
