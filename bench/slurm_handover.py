"""Idle time between two jobs of a chain on a real Slurm: ours and a plain singleton chain, in one run.

`python bench/slurm_handover.py [HAND_OVERS]` starts a private cluster with Slurm's own scheduler settings, on which all
ways run at once, three chains each: ours (without and with `relay.queue_ahead`), and a `--dependency=singleton` chain.
Idle: from the last step of one job to the first step of the next, by the same counting program with jobs of random
length. Writes slurm_handover.csv and, on where ours goes, slurm_handover_parts.csv. About nine minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from slurm_cluster import SlurmCluster, throw_away  # noqa: E402
from slurm_conf import Layout  # noqa: E402

TOYS = ROOT / "bench" / "toys"
CHAINS = 3
#: The scheduler's rounds spread a chain's idle times evenly over some three seconds: a mean of 300 is still off by 3 %.
HAND_OVERS = 100
#: Ours asks the queue every 30 s by default, of jobs of hours; here jobs last 2 to 5 s, and a successor is queued only
#: behind a job that was seen running.
POLL_S = 1.0
#: What one hand-over may take before the script gives up.
SLOW_S = 30.0

Step = tuple[float, str, str]


def read_log(path: Path) -> list[Step]:
    """(time, job, what) of every whole line."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []
    return [(float(w[0]), w[1], w[2]) for w in words if len(w) == 3]


def jobs_of(log: list[Step]) -> list[list[Step]]:
    """The lines of each job that has made a step, in order; a job begins with its `begin` (a requeued one keeps its
    id).
    """
    jobs: list[list[Step]] = []
    for line in log:
        if line[2] == "begin":
            jobs.append([])
        jobs[-1].append(line)
    return [job for job in jobs if len(job) > 1]


def idle(log: list[Step]) -> list[float]:
    """Seconds from each job's last step to the next one's first."""
    return [after[1][0] - before[-1][0] for before, after in pairwise(jobs_of(log))]


def singleton(cluster: SlurmCluster, folder: Path, hand_overs: int) -> list[Path]:
    """All jobs, queued at once, those of a chain under one name. Returns the logs."""
    for chain in range(CHAINS):
        where = make_folder(folder, f"chain{chain}")
        script = where / "job.sh"
        script.write_text(f"#!/bin/bash\nexec {sys.executable} steps.py {hand_overs + 1} steps\n")
        words = ["sbatch", "--parsable", f"--chdir={where}", "--dependency=singleton", f"--job-name=chain{chain}"]
        for _ in range(hand_overs + 1):
            cluster.ask(*words, "--time=2", "--cpus-per-task=1", str(script))
    logs = [folder / f"chain{chain}" / "steps-0.log" for chain in range(CHAINS)]
    cluster.wait_for(
        lambda: all(len(idle(read_log(log))) >= hand_overs for log in logs), "the chains", SLOW_S * hand_overs
    )
    return logs


def ours(cluster: SlurmCluster, folder: Path, hand_overs: int, *, queue_ahead: bool) -> list[Path]:
    """A run of as many slots and jobs. Returns the logs."""
    config = {
        "run_name": folder.name,
        "executor": "slurm",
        "slots": CHAINS,
        "lead_seconds": 5,
        "poll_seconds": POLL_S,
        "slurm": {"time_limit": "0:02:00", "gpus": 0, "cpus_per_task": 1},
        "relay": {"queue_ahead": queue_ahead},
        "command": [sys.executable, "steps.py", str(hand_overs + 1), "steps"],
    }
    (folder / "cluster_config.json").write_text(json.dumps(config))
    env = {**cluster.env(), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "orchestrator", "start"]
    with open(folder / "controller.log", "w") as log:
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=log, stderr=log, timeout=SLOW_S * hand_overs)
    return [folder / f"steps-{slot}.log" for slot in range(CHAINS)]


def parts(folder: Path, logs: list[Path]) -> list[dict[str, float]]:
    """Where the idle seconds of ours went, a row a hand-over."""
    rows = []
    for slot, log in enumerate(logs):
        by_id = {job[0][1]: job for job in jobs_of(read_log(log))}
        attempts = [
            path
            for path in (folder / "runs" / folder.name / "slots" / str(slot) / "attempts").iterdir()
            if (path / "exit.json").exists()
        ]
        ends = [json.loads((path / "exit.json").read_text()) for path in sorted(attempts, key=lambda p: int(p.name))]
        claims = [json.loads((path / "claim").read_text()) for path in sorted(attempts, key=lambda p: int(p.name))]
        for before, after, claim in zip(ends, ends[1:], claims[1:], strict=False):
            last, lines = by_id[before["job_id"]][-1], by_id[after["job_id"]]
            marks = [last[0], before["at"], after["started_at"], claim["at"], lines[0][0], lines[1][0]]
            names = (
                "program and shim end", "controller, Slurm, shim starts", "claim", "parent, program starts",
                "first step",
            )  # fmt: skip
            rows.append({name: b - a for name, (a, b) in zip(names, pairwise(marks), strict=True)})
    return rows


def queued_ahead(folder: Path) -> int:
    """How many jobs of a run of ours were submitted behind another one."""
    lines = [
        json.loads(line)
        for path in (folder / "runs" / folder.name).glob("events-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return len({(e["slot"], e["attempt"]) for e in lines if e["kind"] == "submission" and e.get("after")})


def make_folder(base: Path, name: str) -> Path:
    """A folder with the program."""
    folder = base / name
    folder.mkdir()
    shutil.copy(TOYS / "steps.py", folder)
    return folder


def measure(hand_overs: int) -> tuple[dict[str, list[float]], dict[str, list[dict[str, float]]]]:
    """Idle seconds by way, and the parts of ours."""
    with (
        tempfile.TemporaryDirectory(prefix="al-") as name,
        throw_away(Layout(nodes=2, gpus=0), {"SchedulerParameters": ""}) as cluster,
        ThreadPoolExecutor() as pool,
    ):
        base = Path(name)
        chain, plain, ahead = (make_folder(base, what) for what in ("chain", "plain", "ahead"))
        ways = {
            "singleton chain": pool.submit(singleton, cluster, chain, hand_overs),
            "ours, queue_ahead": pool.submit(ours, cluster, ahead, hand_overs, queue_ahead=True),
            "ours": pool.submit(ours, cluster, plain, hand_overs, queue_ahead=False),
        }
        logs = {what: way.result() for what, way in ways.items()}
        print(f"{queued_ahead(ahead)} jobs were queued behind another one")
        seen = {what: [gap for log in found for gap in idle(read_log(log))] for what, found in logs.items()}
        where = {what: parts(folder, logs[what]) for what, folder in (("ours, queue_ahead", ahead), ("ours", plain))}
    return seen, where


def main() -> None:
    """Measure, print, write."""
    seen, where = measure(figures.number(1, HAND_OVERS))
    base = statistics.mean(seen["singleton chain"])
    rows = []
    for way, gaps in seen.items():
        mean = statistics.mean(gaps)
        line = [f"{value:.2f}" for value in (mean, *figures.late(gaps), mean / base)]
        rows.append([way, len(gaps), *line])
        print(f"{way}: mean {line[0]} s, median {line[1]} s, 90 % {line[2]} s, worst {line[3]} s of {len(gaps)}")
    names = list(where["ours"][0])
    split = [
        [way, *(f"{1000 * statistics.median(row[part] for row in found):.0f}" for part in names)]
        for way, found in where.items()
    ]
    for parted in split:
        print(f"{parted[0]}:", ", ".join(f"{part} {ms} ms" for part, ms in zip(names, parted[1:], strict=True)))
    if len(sys.argv) > 1:
        return  # an excerpt is for looking, not for the page
    head = ["what", "count", "mean_s", "median_s", "p90_s", "worst_s", "times_singleton"]
    figures.save("slurm_handover", head, rows)
    figures.save("slurm_handover_parts", ["median milliseconds", *names], split)


if __name__ == "__main__":
    os.environ.pop("SLURM_CONF", None)
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
