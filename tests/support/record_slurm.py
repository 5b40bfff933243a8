"""Record what this machine's Slurm prints, for the unit tests of the parsing.

Into tests/fixtures/slurm/<command>-<version>.json.
Run it by hand where there is a Slurm of another version; it takes some two minutes. A recording is one command of the
executor with its standard output, standard error and return code, as they were.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_cluster import SlurmCluster, throw_away
from slurm_conf import Layout

from orchestrator.executors.slurm_text import MARK, SACCT_OPTIONS, SINFO_OPTIONS, SQUEUE_OPTIONS

FIXTURES = Path(__file__).parents[1] / "fixtures" / "slurm"
SQUEUE = ("squeue", "-r", "-t", "all", "-u", str(os.getuid()), *SQUEUE_OPTIONS)
SACCT = ("sacct", "-X", "-u", str(os.getuid()), "-S", "now-3600", *SACCT_OPTIONS)
SINFO = ("sinfo", "-e", *SINFO_OPTIONS)
#: sbatch's own patience is over by then, except where it waits for ever.
RECORDING_TIMEOUT_S = 20.0


class Recorder:
    """The recordings so far, by command and case."""

    def __init__(self) -> None:
        self.cases: dict[str, dict[str, Any]] = {}

    def record(self, cluster: SlurmCluster, case: str, *command: str, cwd: Path | None = None) -> None:
        """Run one command and keep its answer; `returncode` null: it did not end and was killed."""
        env = {**cluster.env(), "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        with subprocess.Popen(
            command, env=env, cwd=cwd or cluster.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            try:
                stdout, stderr = child.communicate(timeout=RECORDING_TIMEOUT_S)
                code: int | None = child.returncode
            except subprocess.TimeoutExpired:
                child.kill()
                stdout, stderr = child.communicate()
                code = None
        name = "scancel" if "scancel" in command else command[0]
        self.cases.setdefault(name, {})[case] = {
            "command": list(command),
            "returncode": code,
            "stdout": stdout,
            "stderr": stderr,
        }

    def save(self, version: str) -> None:
        """Write one file a command."""
        FIXTURES.mkdir(parents=True, exist_ok=True)
        for command, cases in self.cases.items():
            (FIXTURES / f"{command}-{version}.json").write_text(json.dumps(cases, indent=1) + "\n")


def script(cluster: SlurmCluster, body: str = "sleep 600") -> str:
    """The path of a job script."""
    path = cluster.folder / f"recorded-{abs(hash(body))}.sh"
    path.write_text(f"#!/bin/bash\n{body}\n")
    return str(path)


def refusals(recorder: Recorder) -> None:
    """What sbatch says when it does not take a job, and when it does."""
    with throw_away(Layout(nodes=2), {"EnforcePartLimits": "ALL"}) as cluster:
        job = script(cluster)

        def sbatch(case: str, *options: str) -> None:
            recorder.record(cluster, case, "sbatch", "--parsable", "--output=/dev/null", *options)

        sbatch("accepted", job)
        sbatch("no such partition", "--partition=nope", job)
        sbatch("too many gpus", "--gres=gpu:9", job)
        sbatch("no such gpu type", "--gres=gpu:h999:1", job)
        sbatch("too much memory", "--mem=900G", job)
        sbatch("too many cpus", "--cpus-per-task=99", job)
        sbatch("too many nodes", "--nodes=9", job)
        sbatch("over the partition's limit", "--partition=short", "--time=5", job)
        sbatch("no such feature", "--constraint=nope", job)
        sbatch("no such node", "--nodelist=nope", job)
        sbatch("no such reservation", "--reservation=nope", job)
        sbatch("no such script", "/nonexistent/job.sh")
        (cluster.folder / "text.sh").write_text("echo hello\n")
        sbatch("not a script", str(cluster.folder / "text.sh"))
        sbatch("unknown option", "--nope", job)
        sbatch("wrong time", "--time=soon", job)
        cluster.ask("scontrol", "update", "PartitionName=short", "State=INACTIVE")
        sbatch("inactive partition", "--partition=short", "--time=1", job)
        recorder.record(cluster, "two partitions", *SINFO)
        recorder.record(cluster, "accounting disabled", *SACCT)
        cluster.suspend_controller()
        sbatch("controller hangs", job)
        recorder.record(cluster, "controller hangs", *SQUEUE)
        cluster.resume_controller()
        cluster.daemons.end("munged", signal.SIGTERM)
        sbatch("munged is dead", job)
        recorder.record(cluster, "munged is dead", *SQUEUE)
    with throw_away(Layout(nodes=1)) as cluster:
        cluster.kill_controller()
        recorder.record(cluster, "controller is dead", "sbatch", "--parsable", script(cluster))
        recorder.record(cluster, "controller is dead", *SQUEUE)
        recorder.record(cluster, "controller is dead", *SINFO)
        recorder.record(cluster, "controller is dead", "scancel", "1")
        recorder.record(cluster, "controller is dead", "scontrol", "show", "config")
    with throw_away(Layout(nodes=1), {"MaxJobCount": "1"}) as cluster:
        recorder.record(cluster, "controller is full", "sbatch", "--parsable", "--output=/dev/null", script(cluster))


def limits(recorder: Recorder) -> None:
    """What sbatch says about limits on users, and what sacct says about anything."""
    with throw_away(Layout(nodes=2, accounting=True)) as cluster:
        job, user = script(cluster), cluster.ask("id", "-un").strip()

        def sbatch(case: str, *options: str) -> None:
            recorder.record(cluster, case, "sbatch", "--parsable", "--output=/dev/null", *options)

        def manage(*words: str) -> None:
            cluster.ask("sacctmgr", "-i", *words)

        recorder.record(cluster, "nothing yet", *SACCT)
        sbatch("no such account", "--account=nope", job)
        sbatch("no such qos", "--qos=nope", job)
        manage("modify", "user", user, "set", "MaxSubmitJobs=1")
        sbatch("accepted under a limit", job)
        sbatch("user's submit limit", job)
        manage("modify", "user", user, "set", "MaxSubmitJobs=-1")
        manage("modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=1")
        sbatch("qos's submit limit", job)
        manage("modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=-1", "MaxWall=1", "Flags=DenyOnLimit")
        sbatch("qos's walltime limit", "--time=5", job)
        manage("modify", "qos", "normal", "set", "MaxWall=-1")
        cluster.clear()
        failed = cluster.submit("exit 7")
        killed = cluster.submit("kill -9 $$")
        cancelled = cluster.submit("sleep 600")
        running = cluster.submit("sleep 600")
        waiting = cluster.submit("sleep 600", "--hold")
        never = cluster.submit("sleep 600", "--hold")
        cluster.wait_for_state(running, "RUNNING")
        cluster.wait_for_state(cancelled, "RUNNING")
        cluster.wait_for_state(failed, "FAILED")
        cluster.wait_for_state(killed, "FAILED")
        cluster.ask("scancel", str(cancelled), str(never))
        cluster.wait_for_state(cancelled, "CANCELLED")
        cluster.wait_for(lambda: f"{failed}{MARK}FAILED" in cluster.ask(*SACCT), "the history to know the failure")
        cluster.wait_for(lambda: "CANCELLED by" in cluster.ask(*SACCT), "the history to know the cancellation")
        recorder.record(cluster, "several ends", *SACCT)
        recorder.record(cluster, "several ends", *SQUEUE)
        wake = ("scancel", "--signal=USR2", "--batch", "--state=RUNNING")
        recorder.record(cluster, "a waiting job is woken", *wake, str(waiting))
        recorder.record(cluster, "an ended job is woken", *wake, str(failed))
        recorder.record(cluster, "an ended job", "scancel", str(failed))
        recorder.record(cluster, "an unknown job", "scancel", "99999")
        recorder.record(cluster, "an unknown job is woken", *wake, "99999")
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        if os.geteuid() == 0:
            cluster.folder.chmod(0o755)
            recorder.record(cluster, "somebody else's job", *nobody, "scancel", str(running))
        cluster.daemons.end("slurmdbd", signal.SIGTERM)
        recorder.record(cluster, "slurmdbd is dead", *SACCT)


def queues(recorder: Recorder) -> None:
    """What squeue says about jobs in many states, with work folders of all kinds."""
    with throw_away(Layout(nodes=2)) as cluster:
        recorder.record(cluster, "empty", *SQUEUE)
        recorder.record(cluster, "defaults", "scontrol", "show", "config")
        strange = cluster.folder / "a|b 1|RUNNING|c"
        newline = cluster.folder / "line\nbreak"
        for folder in (strange, newline):
            folder.mkdir()
        running = cluster.submit("sleep 600", "--gres=gpu:1")
        ended = cluster.submit("exit 0")
        cluster.wait_for_state(ended, "COMPLETED")
        cluster.submit("sleep 600", "--exclusive", "--nodes=2")
        cluster.submit("sleep 600", "--hold", "--array=0-1")
        cluster.submit("sleep 600", f"--dependency=afterok:{running}")
        cluster.submit("sleep 600", f"--chdir={strange}", "--partition=short", "--time=5")
        cluster.submit("sleep 600", f"--chdir={newline}")
        cluster.wait_for_state(running, "RUNNING")
        cluster.wait_for(lambda: "PartitionTimeLimit" in cluster.ask(*SQUEUE), "the reasons")
        recorder.record(cluster, "many states", *SQUEUE)
        cluster.submit("sleep 600", "--partition=gpu,short", "--time=5")
        recorder.record(cluster, "several partitions", *SQUEUE)
        recorder.record(cluster, "all free nodes", *SINFO)


def main() -> None:
    """Record everything."""
    recorder = Recorder()
    steps: list[Callable[[Recorder], None]] = [queues, refusals, limits]
    for step in steps:
        step(recorder)
    version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    recorder.save(version)
    sys.stdout.write(f"recorded Slurm {version} in {FIXTURES}\n")


if __name__ == "__main__":
    tempfile.tempdir = "/tmp"
    main()
