"""The goodput of four-hour jobs, line by line, from the measured parts of real hand-overs of the MT10 training.

`python bench/goodput.py [HAND_OVERS]` starts a private cluster on which the presets `tiny` and `debug` train side by
side in jobs of 40 seconds, and asks `orchestrator goodput --json` what start-up, saving and the gaps took. Those
seconds do not grow with a job's length (start-up grows with the replay buffer), so the rest is arithmetic; the
last line is the median goodput of the measured jobs themselves. Claimed before: 90 % at least. Writes goodput.csv.
About four minutes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from slurm_cluster import SlurmCluster, throw_away  # noqa: E402
from slurm_conf import Layout  # noqa: E402

PRESETS = ("tiny", "debug")
HAND_OVERS = 3
RUNTIME_S = 40.0
#: The jobs that the figure is about, with the default lead.
WALLTIME_S = 4 * 3600.0
LEAD_S = 120.0
COMMAND_S = 180.0
#: A start of the MT10 environments on a busy machine, and a job.
JOB_S = 240.0


def orchestrator(cluster: SlurmCluster, folder: Path, *words: str) -> str:
    """The standard output of a command in a run's folder."""
    env = {**cluster.env(), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "orchestrator", *words]
    return subprocess.run(
        command, cwd=folder, env=env, check=True, timeout=COMMAND_S, text=True, stdout=subprocess.PIPE
    ).stdout


def begin(cluster: SlurmCluster, folder: Path) -> None:
    """A run of one slot; its folder's name is the preset."""
    folder.mkdir()
    training = {
        "preset": folder.name,
        "benchmark": "MT10",
        "total_steps": 50_000_000,
        "num_workers": 0,
        "evaluation_goals": 0,
        "max_runtime_seconds": RUNTIME_S,
    }
    config = {
        "run_name": folder.name,
        "executor": "slurm",
        "lead_seconds": 20,
        "slurm": {"time_limit": "0:05:00", "gpus": 0, "cpus_per_task": 1, "mem": "3G"},
        "training": training,
    }
    (folder / "cluster_config.json").write_text(json.dumps(config))
    orchestrator(cluster, folder, "start", "--via", "daemon")


def measured(slot: dict[str, Any]) -> dict[str, float]:
    """Medians over the hand-overs: the first job starts from scratch, the last one is stopped by us."""
    times = [job["times"] for job in slot["jobs"]]
    gaps = slot["times"]["queue_s"] + slot["times"]["waiting_s"] + slot["times"]["blind_s"]
    return {
        "start_up": statistics.median(row["start_up_s"] for row in times[1:-1]),
        "saving": statistics.median(row["saving_s"] for row in times[:-1]),
        "idle": gaps / len(times),
        "lost": sum(row["lost_s"] for row in times),
        "goodput": statistics.median(row["goodput"] for row in times[1:-1]),
    }


def arithmetic(part: dict[str, float]) -> list[tuple[str, str]]:
    """One four-hour job, line by line."""
    asked = WALLTIME_S - LEAD_S
    productive, allocated = asked - part["start_up"], asked + part["saving"]
    return [
        ("walltime", f"{WALLTIME_S:.0f} s"),
        (f"asked to hand over, {LEAD_S:.0f} s before the end, at", f"{asked:.0f} s"),
        ("start-up, to the first new step (measured)", f"{part['start_up']:.1f} s"),
        ("productive = asked - start-up", f"{productive:.1f} s"),
        ("saving, from the request to the end of the job (measured)", f"{part['saving']:.1f} s"),
        ("allocated = asked + saving", f"{allocated:.1f} s"),
        ("lost in all measured hand-overs", f"{part['lost']:.1f} s"),
        ("goodput = productive / allocated", f"{100 * productive / allocated:.2f} %"),
        ("idle before each job, nobody's allocation (measured)", f"{part['idle']:.1f} s"),
        ("share of the days in which steps are made", f"{100 * productive / (allocated + part['idle']):.2f} %"),
        (f"goodput of jobs of {RUNTIME_S:.0f} s (measured)", f"{100 * part['goodput']:.1f} %"),
    ]


def main() -> None:
    """Measure, print, write."""
    hand_overs = figures.number(1, HAND_OVERS)
    seen = {}
    with (
        tempfile.TemporaryDirectory(prefix="al-") as name,
        throw_away(Layout(nodes=2, gpus=0), {"SchedulerParameters": ""}) as cluster,
    ):
        folders = [Path(name) / preset for preset in PRESETS]
        for folder in folders:
            begin(cluster, folder)
        for folder in folders:
            # One more than is measured: the jobs in the middle were both resumed and asked for by the clock.
            last = folder / "runs" / folder.name / "slots/0/attempts" / str(hand_overs + 1) / "progress.json"
            cluster.wait_for(last.exists, f"{hand_overs + 1} hand-overs", JOB_S * (hand_overs + 1))
        for folder in folders:
            orchestrator(cluster, folder, "stop")
            run = json.loads(orchestrator(cluster, folder, "goodput", "--json"))
            seen[folder.name] = measured(run["slots"][0])
            print(folder.name, {key: round(value, 2) for key, value in seen[folder.name].items()})
    lines = {preset: arithmetic(part) for preset, part in seen.items()}
    rows = [[what, *(lines[preset][number][1] for preset in lines)] for number, (what, _) in enumerate(lines["tiny"])]
    for row in rows:
        print(" | ".join(row))
    if len(sys.argv) > 1:
        return
    figures.save("goodput", ["a job of four hours", *lines], rows)


if __name__ == "__main__":
    os.environ.pop("SLURM_CONF", None)
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
