"""Ten faults, played for four ways to keep a program going on Slurm: ours, a singleton chain, submitit, Lightning.

`python bench/faults.py [FAULT …]` starts a private cluster for each fault and keeps the same counting program going in
all four ways at once: a run of ours, a chain of jobs that were queued together (`--dependency=singleton`), submitit's
`checkpoint`, Lightning's requeue. Then the fault strikes. From the programs' logs: steps done again (what was lost),
seconds in which two of them ran side by side, seconds in which none did, and how often a person had to type something,
because the work was not done and no job of that way was left. Writes faults.csv; it takes more than an hour, because
Slurm lets a requeued job wait for two minutes. submitit is installed into a temporary folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from mounts import mounted  # noqa: E402
from slurm_cluster import SlurmCluster, throw_away  # noqa: E402
from slurm_conf import Layout  # noqa: E402

TOYS = ROOT / "bench" / "toys"
SUBMITIT = Path(tempfile.gettempdir()) / "anchorleg-bench-submitit"
#: So that no way is done when the slowest begins; more where a walltime of two minutes must come in between.
STEPS, MANY_STEPS = 2000, 4200
#: The fault strikes when all have come so far: behind a checkpoint, and before the next.
STRIKE_AT = 150
CHAIN_JOBS = 8
#: A way without a job, and without a step for so long, waits for a person.
PERSON_S = 45.0
#: Then even a person gives up.
GIVE_UP_S = 900.0
#: A gap between two steps that is idle time, and no slow machine's.
IDLE_S = 0.5
#: Killed with its program, a node's death is seen within seconds; urgent jobs take nodes from others.
OVERRIDES = {
    "SlurmdTimeout": "8", "KillWait": "5", "PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE",
}  # fmt: skip
PYTHON_JOB = "#!/bin/bash\n#SBATCH --cpus-per-task=1 --mem=500M --time={minutes} --requeue --open-mode=append\n"


class Way:
    """One way, in a folder of its own. `minutes`: walltime of its jobs."""

    name: str

    def __init__(self, cluster: SlurmCluster, base: Path, total: int, minutes: int) -> None:
        self.cluster, self.total, self.minutes = cluster, total, minutes
        self.folder = base / self.name.split()[0]
        self.folder.mkdir()
        self.env = {**cluster.env(), "PATH": f"{base / 'bin'}:{cluster.env()['PATH']}"}
        self.hands = 0

    def type(self) -> None:
        """What a person types to begin, and again where it is needed."""
        raise NotImplementedError

    def sh(self, *words: str, **more: str) -> int:
        """A command of that person; its exit code."""
        with open(self.folder / "typed.log", "a") as log:
            env = {**self.env, **more}
            return subprocess.run(words, cwd=self.folder, env=env, stdout=log, stderr=log, check=False).returncode

    def insist(self, *words: str, **more: str) -> None:
        """The same; where it says that it failed, the person types it again."""
        if self.sh(*words, **more):
            self.sh(*words, **more)

    def script(self, run: str, signalled: str) -> str:
        """The path of a job script that runs a command, with the signal before its end that is asked for."""
        path = self.folder / "job.sh"
        path.write_text(f"{PYTHON_JOB.format(minutes=self.minutes)}#SBATCH --signal={signalled}@10\n{run}\n")
        return str(path)

    def log(self) -> list[tuple[float, int, int]]:
        """(time, process, step) of every step so far."""
        with contextlib.suppress(FileNotFoundError):
            found = re.findall(r"^(\d+\.\d{3}) (\d+) (\d+)$", (self.folder / "log").read_text(), re.MULTILINE)
            return sorted((float(at), int(pid), int(step)) for at, pid, step in found)
        return []

    def jobs(self) -> list[str]:
        """The ids of its jobs that run or wait."""
        told = self.cluster.run("squeue", "-h", "-o", "%A %Z").stdout.splitlines()
        return [line.split()[0] for line in told if f"{self.folder}" in line]

    def is_done(self) -> bool:
        """Whether every step was done."""
        return max((step for _, _, step in self.log()), default=0) >= self.total

    def row(self, fault: str, began_at: float) -> list[object]:
        """Its line of the table."""
        log = self.log()
        furthest, again = 0, 0
        for _, _, step in log:
            again += step <= furthest
            furthest = max(furthest, step)
        of = {pid: [at for at, other, _ in log if other == pid] for pid in {pid for _, pid, _ in log}}
        spans = sorted((min(times), max(times)) for times in of.values())
        both = sum(max(0.0, min(one[1], other[1]) - other[0]) for one, other in pairwise(spans))
        end = next((at for at, _, step in log if step >= self.total), log[-1][0] if log else began_at)
        idle = sum(
            gap for a, b in pairwise([began_at, *(at for at, *_ in log if at <= end)]) if (gap := b - a) > IDLE_S
        )
        return [fault, self.name, "yes" if self.is_done() else "no", again, f"{both:.0f}", f"{idle:.0f}", self.hands]


class Ours(Way):
    """A run with a controller in the background, and failover ticks by its jobs."""

    name = "Anchorleg"

    def type(self) -> None:  # noqa: D102 - see Way
        config = {
            "run_name": "run", "executor": "slurm", "poll_seconds": 1, "lead_seconds": 10,
            "slurm": {"time_limit": str(self.minutes), "gpus": 0, "cpus_per_task": 1, "mem": "500M"},
            "command": [sys.executable, str(TOYS / "kept.py"), str(self.folder), str(self.total)],
        }  # fmt: skip
        if self.minutes > 10:
            config["slurm"]["time_min"] = "0:02:00"  # type: ignore[index]
        (self.folder / "cluster_config.json").write_text(json.dumps(config))
        state = {"XDG_STATE_HOME": str(self.folder / "state"), "PYTHONPATH": str(ROOT)}
        if self.sh(sys.executable, "-P", "-m", "orchestrator", "start", "--via", "daemon", **state):
            raise RuntimeError((self.folder / "typed.log").read_text())


class Chain(Way):
    """Jobs that wait for each other by their name; each goes on from the newest checkpoint."""

    name = "singleton chain"

    def type(self) -> None:  # noqa: D102
        script = self.script(f"exec {sys.executable} {TOYS / 'kept.py'} {self.folder} {self.total}", "B:USR2")
        for _ in range(CHAIN_JOBS):
            self.insist("sbatch", "--dependency=singleton", "--job-name=chain", script)


class Submitit(Way):
    """A callable whose `checkpoint` says how it goes on; submitit requeues it at its time limit and at preemption."""

    name = "submitit"

    def type(self) -> None:  # noqa: D102
        words = (
            f"import sys; sys.path.insert(0, {str(TOYS)!r})\nimport submitit\nfrom kept import Kept\n"
            f"to = submitit.AutoExecutor(folder={str(self.folder)!r}, cluster='slurm', slurm_max_num_timeout=20)\n"
            f"to.update_parameters(timeout_min={self.minutes}, slurm_cpus_per_task=1, slurm_mem='500M',"
            f" slurm_signal_delay_s=10, slurm_additional_parameters={{'chdir': {str(self.folder)!r}}})\n"
            f"print(to.submit(Kept({str(self.folder)!r}, {self.total})).job_id)\n"
        )
        self.insist(sys.executable, "-c", words, PYTHONPATH=f"{TOYS}:{SUBMITIT}")


class Lightning(Way):
    """Lightning's Trainer, which saves and requeues its job at the signal before the time limit."""

    name = "Lightning"

    def type(self) -> None:  # noqa: D102
        run = f"srun {sys.executable} {TOYS / 'kept_lightning.py'} {self.folder} {self.total}"
        self.insist("sbatch", self.script(run, "USR2"))


WAYS = (Ours, Chain, Submitit, Lightning)


def programs_of(ways: list[Way]) -> list[int]:
    """The processes that make the steps."""
    return [way.log()[-1][1] for way in ways]


def kill(pids: list[int]) -> None:
    """As the kernel does it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def preempted(cluster: SlurmCluster, _ways: list[Way]) -> None:
    cluster.submit("sleep 15", "--partition=urgent", f"--nodes={NODES}", "--exclusive", "--time=1")


def node_dies(cluster: SlurmCluster, ways: list[Way]) -> None:
    nodes = {row.node for row in cluster.squeue() if row.node}
    for node in nodes:
        cluster.kill_node(node)
    kill(programs_of(ways))
    time.sleep(30)
    for node in nodes:
        cluster.start_node(node)


def out_of_memory(_cluster: SlurmCluster, ways: list[Way]) -> None:
    kill(programs_of(ways))


def slurmctld_killed(cluster: SlurmCluster, ways: list[Way]) -> None:
    cluster.kill_controller()
    kill(programs_of(ways))  # what ends meanwhile
    time.sleep(15)
    cluster.start_controller()


def full_disk(_cluster: SlurmCluster, ways: list[Way]) -> None:
    hog = ways[0].folder.parent / "hog"
    with contextlib.suppress(OSError), open(hog, "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    time.sleep(20)
    hog.unlink()


def controller_killed(_cluster: SlurmCluster, ways: list[Way]) -> None:
    leases = (ways[0].folder / "runs/run/lease").glob("[0-9]*")
    newest = max((path for path in leases if path.name.isdigit()), key=lambda path: int(path.name))
    kill([json.loads(newest.read_text())["process"]["pid"]])


def requeued(cluster: SlurmCluster, ways: list[Way]) -> None:
    for way in ways:
        for row in cluster.squeue():
            if row.state == "RUNNING" and str(row.job_id) in way.jobs():
                cluster.run("scontrol", "requeue", str(row.job_id))


def nothing(_cluster: SlurmCluster, _ways: list[Way]) -> None:
    """It struck before, or does by itself."""


#: Fault → (what happens when all are at STRIKE_AT, steps, walltime in minutes).
Strike = Callable[[SlurmCluster, list[Way]], None]
FAULTS: dict[str, tuple[Strike, int, int]] = {
    "walltime": (nothing, MANY_STEPS, 2),
    "preemption": (preempted, STEPS, 10),
    "node dies": (node_dies, STEPS, 10),
    "out of memory": (out_of_memory, STEPS, 10),
    "slurmctld killed": (slurmctld_killed, STEPS, 10),
    "sbatch says no, and did": (nothing, STEPS, 10),
    "disk full": (full_disk, STEPS, 10),
    "controller killed": (controller_killed, STEPS, 10),
    "requeued by an admin": (requeued, STEPS, 10),
    "maintenance ahead": (nothing, STEPS, 60),
}
NODES = 6


@contextlib.contextmanager
def playground(fault: str) -> Iterator[tuple[SlurmCluster, Path]]:
    """A cluster and a folder, on a disk of its own where it will be full."""
    base = Path(tempfile.mkdtemp(prefix="al-"))
    disk = mounted(base, "size=64m") if fault == "disk full" else contextlib.nullcontext()
    with throw_away(Layout(nodes=NODES, gpus=0, cpus=1, memory_mb=2000), OVERRIDES) as cluster, disk:
        urgent = ("PartitionName=urgent", "Nodes=ALL", "PriorityTier=10", "State=UP", "MaxTime=5")
        cluster.ask("scontrol", "create", *urgent)
        (base / "bin").mkdir()
        if fault.startswith("sbatch"):
            real, wrapper = shutil.which("sbatch", path=cluster.env()["PATH"]), base / "bin" / "sbatch"
            wrapper.write_text(
                f'#!/bin/bash\n{real} "$@" >"$PWD/said" 2>&1\ncode=$?\n'
                'if [ ! -e "$PWD/lied" ] && [[ "$*" != *--test-only* ]]; then touch "$PWD/lied"\n'
                '  echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2\n'
                '  exit 1\nfi\ncat "$PWD/said"; exit $code\n'
            )
            wrapper.chmod(0o755)
        if fault.startswith("maintenance"):
            times = ("StartTime=now+4minutes", "Duration=1", "Flags=MAINT,IGNORE_JOBS")
            cluster.ask(
                "scontrol", "create", "reservation", "ReservationName=service", "Nodes=ALL", "Users=daemon", *times
            )
        try:
            yield cluster, base
        finally:
            cluster.stop()
            subprocess.run(["pkill", "-KILL", "-f", str(base)], check=False)
    shutil.rmtree(base, ignore_errors=True)


def play(fault: str) -> list[list[object]]:
    """One fault: a row a way."""
    strike, total, minutes = FAULTS[fault]
    with playground(fault) as (cluster, base):
        ways: list[Way] = [way(cluster, base, total, minutes) for way in WAYS]
        began_at = time.time()
        for way in ways:
            way.type()
        quiet = dict.fromkeys(ways, time.monotonic())
        seen = dict.fromkeys(ways, 0)
        struck = strike is nothing
        while not all(way.is_done() for way in ways) and time.time() - began_at < GIVE_UP_S:
            time.sleep(1)
            if not struck and all(len(way.log()) >= STRIKE_AT for way in ways):
                strike(cluster, ways)
                struck = True
            for way in ways:
                if len(way.log()) > seen[way] or way.jobs():
                    quiet[way], seen[way] = time.monotonic(), len(way.log())
                elif not way.is_done() and time.monotonic() - quiet[way] > PERSON_S:
                    way.hands += 1
                    way.type()
                    quiet[way] = time.monotonic()
        return [way.row(fault, began_at) for way in ways]


def main() -> None:
    """Play, print, write."""
    asked = [word for word in sys.argv[1:] if word != "--replace"] or list(FAULTS)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(SUBMITIT), "submitit"]
    subprocess.run(pip, check=True)
    rows = []
    for fault in asked:
        rows += play(fault)
        for row in rows[-len(WAYS) :]:
            print(*row, sep=", ", flush=True)
    if len(asked) == len(FAULTS):
        head = ["fault", "way", "finished", "steps done again", "two at once s", "idle s", "hands"]
        figures.save("faults", head, rows)


if __name__ == "__main__":
    os.environ.pop("SLURM_CONF", None)
    main()
