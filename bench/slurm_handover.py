"""Idle time between two jobs of a chain on a real Slurm: ours, a plain singleton chain, and submitit, in one run.

`python bench/slurm_handover.py [ROUNDS [SUBMITIT_HAND_OVERS]]` starts a private cluster with Slurm's own scheduler
settings. Ours (without and with `relay.queue_ahead`) and a `--dependency=singleton` chain take turns; submitit, which
the script installs from PyPI into an environment of its own, is signalled again and again meanwhile. Idle: from the
last step of one job to the first step of the next, by the same counting program. Writes
bench/results/slurm_handover.csv and, on where ours goes, slurm_handover_parts.csv. About seven minutes.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "real"))

from slurm_cluster import SlurmCluster, throw_away  # noqa: E402
from slurm_conf import Layout  # noqa: E402

TOYS = ROOT / "bench" / "toys"
#: A job of 4 s: time enough for a look at the queue, upon which ours queues its successor. The work between two
#: hand-overs is no part of what is measured.
STEPS = 80
#: Ours asks the queue every 30 s by default, of jobs of hours; here jobs are short.
POLL_S = 1.0
#: Hand-overs in one turn.
TURN = 6
ROUNDS = 3
SUBMITIT_HAND_OVERS = 3
#: What a chain may take for one hand-over before the script gives up.
SLOW_S = 60.0
#: scontrol requeue waits for two minutes (121.5 s was measured).
REQUEUE_S = 300.0
INSTALL_S = 300.0

Step = tuple[float, str, str]


def read_log(path: Path) -> list[Step]:
    """(time, job, what) of every line."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []
    return [(float(w[0]), w[1], w[2]) for w in words if len(w) == 3]


def idle(log: list[Step]) -> list[float]:
    """Seconds from each job's last step to the next one's first; a job begins with its `begin`."""
    jobs: list[list[float]] = []
    for at, _, what in log:
        if what == "begin":
            jobs.append([])
        else:
            jobs[-1].append(at)
    return [after[0] - before[-1] for before, after in pairwise(job for job in jobs if job)]


def wait_until_gone(cluster: SlurmCluster, folder: Path) -> None:
    """No job of this turn is left; submitit's stays."""
    ours = f"{folder}/"
    cluster.wait_for(
        lambda: not [row for row in cluster.squeue() if f"{row.work_dir}/".startswith(ours)], "the turn's end", SLOW_S
    )


def singleton(cluster: SlurmCluster, folder: Path) -> None:
    """All jobs of a turn, queued at once under one name."""
    script = folder / "job.sh"
    script.write_text(f"#!/bin/bash\nexec {sys.executable} steps.py {STEPS} {STEPS * (TURN + 1)}\n")
    words = ["sbatch", "--parsable", f"--chdir={folder}", "--dependency=singleton", f"--job-name={folder.name}"]
    for _ in range(TURN + 1):
        cluster.ask(*words, "--time=2", "--cpus-per-task=1", str(script))
    cluster.wait_for(lambda: len(idle(read_log(folder / "steps.log"))) >= TURN, "the chain", SLOW_S * TURN)
    wait_until_gone(cluster, folder)


def ours(cluster: SlurmCluster, folder: Path, *, queue_ahead: bool) -> None:
    """A run of as many jobs."""
    config = {
        "run_name": folder.name,
        "executor": "slurm",
        "lead_seconds": 5,
        "poll_seconds": POLL_S,
        "slurm": {"time_limit": "0:02:00", "gpus": 0, "cpus_per_task": 1},
        "relay": {"queue_ahead": queue_ahead},
        "command": [sys.executable, "steps.py", str(STEPS), str(STEPS * (TURN + 1))],
    }
    (folder / "cluster_config.json").write_text(json.dumps(config))
    env = {**cluster.env(), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "orchestrator", "start"]
    with open(folder / "controller.log", "w") as log:
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=log, stderr=log, timeout=SLOW_S * TURN)
    wait_until_gone(cluster, folder)


def queued_ahead(folder: Path) -> int:
    """How many jobs of a turn of ours were submitted behind another one."""
    lines = [
        json.loads(line)
        for path in (folder / "runs" / folder.name).glob("events-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return len({line["attempt"] for line in lines if line["kind"] == "submission" and line.get("after")})


def parts(folder: Path) -> list[dict[str, float]]:
    """Where the idle seconds of one turn of ours went, a row a hand-over."""
    run = folder / "runs" / folder.name
    log = read_log(folder / "steps.log")
    steps = [at for at, _, what in log if what == "step"]
    begins = [at for at, _, what in log if what == "begin"]
    attempts = sorted((run / "slots/0/attempts").iterdir(), key=lambda path: int(path.name))
    ends = [json.loads((path / "exit.json").read_text()) for path in attempts]
    claims = [json.loads((path / "claim").read_text()) for path in attempts]
    rows = []
    for number in range(1, len(attempts)):
        last = steps[number * STEPS - 1]
        marks = [
            last, ends[number - 1]["at"], ends[number]["started_at"], claims[number]["at"], begins[number],
            steps[number * STEPS],
        ]  # fmt: skip
        names = ("program and shim end", "controller and Slurm", "claim", "parent, program starts", "first step")
        rows.append({name: b - a for name, (a, b) in zip(names, pairwise(marks), strict=True)})
    return rows


class Submitit(threading.Thread):
    """submitit's job, signalled after every few steps, in the background of everything else."""

    def __init__(self, cluster: SlurmCluster, folder: Path, hand_overs: int) -> None:
        super().__init__()
        self.cluster, self.folder, self.hand_overs = cluster, folder, hand_overs
        self.trouble: Exception | None = None

    def run(self) -> None:
        """Install, submit, signal."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - it is raised again by whoever joins
            self.trouble = error

    def _run(self) -> None:
        venv.create(self.folder / "venv", with_pip=True)
        python = str(self.folder / "venv/bin/python")
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "submitit"]
        subprocess.run(pip, check=True, timeout=INSTALL_S)
        submit = [python, str(TOYS / "with_submitit.py"), str(self.folder)]
        job = self.cluster.ask(*submit).split()[-1]
        log = self.folder / "steps.log"
        for number in range(self.hand_overs):
            self.cluster.wait_for(
                lambda number=number: len(idle(read_log(log))) == number and self._steps_of_this_job(log) >= STEPS,
                f"submitit's job {number}", REQUEUE_S,
            )  # fmt: skip
            self.cluster.ask("scancel", "--signal=USR2", job)
        self.cluster.wait_for(lambda: len(idle(read_log(log))) >= self.hand_overs, "submitit's last job", REQUEUE_S)
        self.cluster.ask("scancel", job)

    @staticmethod
    def _steps_of_this_job(log: Path) -> int:
        lines = read_log(log)
        begin = max(number for number, line in enumerate(lines) if line[2] == "begin") if lines else 0
        return len(lines) - 1 - begin


def make_folder(base: Path, name: str) -> Path:
    """A folder of its own for a turn, with the program."""
    folder = base / name
    folder.mkdir()
    shutil.copy(TOYS / "steps.py", folder)
    return folder


def measure(rounds: int, submitit_hand_overs: int) -> tuple[dict[str, list[float]], dict[str, list[dict[str, float]]]]:
    """Idle seconds by way, and the parts of ours."""
    seen: dict[str, list[float]] = {"singleton chain": [], "ours, queue_ahead": [], "ours": []}
    where: dict[str, list[dict[str, float]]] = {"ours, queue_ahead": [], "ours": []}
    with (
        tempfile.TemporaryDirectory(prefix="al-") as name,
        throw_away(Layout(nodes=2, gpus=0), {"SchedulerParameters": ""}) as cluster,
    ):
        base = Path(name)
        rival = Submitit(cluster, make_folder(base, "submitit"), submitit_hand_overs)
        if submitit_hand_overs:
            rival.start()
        for number in range(rounds):
            for way, gaps in seen.items():
                folder = make_folder(base, f"{way.replace(', ', '-').replace(' ', '-')}-{number}")
                if way == "singleton chain":
                    singleton(cluster, folder)
                else:
                    ours(cluster, folder, queue_ahead="queue_ahead" in way)
                    where[way] += parts(folder)
                    print(f"  {queued_ahead(folder)} of {TURN + 1} jobs were queued behind another one")
                gaps.extend(idle(read_log(folder / "steps.log")))
                print(f"round {number + 1}: {way}: {statistics.median(gaps):.2f} s so far", flush=True)
        if submitit_hand_overs:
            rival.join()
            if rival.trouble is not None:
                raise rival.trouble
            seen["submitit, requeued"] = idle(read_log(rival.folder / "steps.log"))
    return seen, where


def main() -> None:
    """Measure, print, write."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    hand_overs = int(sys.argv[2]) if len(sys.argv) > 2 else SUBMITIT_HAND_OVERS
    seen, where = measure(rounds, hand_overs)
    base = statistics.median(seen["singleton chain"])
    rows = []
    for way, gaps in seen.items():
        ordered = sorted(gaps)
        middle, late = statistics.median(ordered), ordered[int(0.9 * (len(ordered) - 1))]
        rows.append([way, len(gaps), f"{middle:.2f}", f"{late:.2f}", f"{ordered[-1]:.2f}", f"{middle / base:.2f}"])
        print(f"{way}: median {middle:.2f} s, 90 % {late:.2f} s, worst {ordered[-1]:.2f} s of {len(gaps)}")
    names = list(where["ours"][0])
    split = [
        [way, *(f"{1000 * statistics.median(row[part] for row in found):.0f}" for part in names)]
        for way, found in where.items()
    ]
    for line in split:
        print(line[0], ", ".join(f"{part} {ms} ms" for part, ms in zip(names, line[1:], strict=True)))
    if len(sys.argv) > 1:
        return  # an excerpt is for looking, not for the page
    results = ROOT / "bench" / "results"
    for name, head, lines in (
        ("slurm_handover", ["what", "count", "median_s", "p90_s", "worst_s", "times_singleton"], rows),
        ("slurm_handover_parts", ["milliseconds", *names], split),
    ):
        with open(results / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(lines)


if __name__ == "__main__":
    os.environ.pop("SLURM_CONF", None)
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
