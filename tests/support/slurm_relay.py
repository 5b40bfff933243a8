"""A run of the counting program whose jobs are those of a test cluster."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from relay import PROGRAMS, NewRelay, Relay
from slurm_cluster import JobRow, SlurmCluster

from orchestrator.decisions.models import parse_token

IMPATIENT = str(PROGRAMS / "impatient.py")


def on_slurm(new_relay: NewRelay, cluster: SlurmCluster, name: str = "toy", **settings: Any) -> Relay:
    """A run on a test cluster, with short polls; `settings` as `Relay.make` takes them, `slurm` is merged into ours."""
    section = {"time_limit": "30", "mem": "100M", "cpus_per_task": 1, "gpus": 0, **settings.pop("slurm", {})}
    settings = {"poll_seconds": 0.5, **settings}
    return new_relay(name, env=cluster.env(), executor="slurm", slurm=section, **settings)


def start_impatient(relay: Relay, **seconds: float) -> subprocess.Popen[str]:
    """`orchestrator start` in the background with shorter waiting times; see programs/impatient.py for their names."""
    words = ",".join(f"{name}={value}" for name, value in seconds.items())
    return relay.spawn("start", driver=(IMPATIENT, words))


def left_unsure(words: str) -> bool:
    """Whether slurmctld died under sbatch's connection: neither sbatch can know what came of it, nor can we."""
    return "Transport endpoint is not connected" in words or "Connection reset by peer" in words


def rows_of(cluster: SlurmCluster, relay: Relay) -> list[JobRow]:
    """The run's jobs that wait, run or are ending."""
    return [row for row in cluster.squeue() if row.work_dir.startswith(f"{relay.run_dir}/")]


def ever(cluster: SlurmCluster, relay: Relay) -> list[JobRow]:
    """All jobs of the run that the cluster remembers, oldest first, the ended ones too."""
    rows = [row for row in cluster.jobs() if row.work_dir.startswith(f"{relay.run_dir}/")]
    return sorted(rows, key=lambda row: row.job_id)


def ends(cluster: SlurmCluster, relay: Relay) -> list[str]:
    """How the run's jobs ended, oldest first. A job's own record is there before Slurm knows of its end."""
    cluster.wait_for(lambda: not rows_of(cluster, relay), "Slurm to know of every end")
    return [row.state for row in ever(cluster, relay)]


def tokens_of(relay: Relay, attempt: int, slot: int = 0) -> list[str]:
    """Every submission that was ever prepared for an attempt: each leaves a folder, unless it was refused."""
    names = [path.name for path in (relay.run_dir / "jobs").iterdir()]
    return [name for name in names if parse_token(name) == (slot, attempt)]


def set_pace(relay: Relay, pace_s: float) -> None:
    """How fast the jobs that begin from now on count."""
    (relay.folder / "data" / "pace.txt").write_text(f"{pace_s}\n")


def hand_over(relay: Relay, slot: int = 0, *, next_pace_s: float = 0.001) -> None:
    """Have the newest attempt hand over, behind the controller's back. The jobs after it count at `next_pace_s`."""
    set_pace(relay, next_pace_s)
    relay.hand_over(slot)


def wait_until_saved(cluster: SlurmCluster, relay: Relay) -> None:
    """Wait until slurmctld has written down that the run's jobs run: what it has not, a SIGKILL undoes."""
    cluster.wait_for(lambda: {row.state for row in rows_of(cluster, relay)} == {"RUNNING"}, "the jobs to run")
    now = time.time()
    cluster.wait_for(lambda: saved_at(cluster) > now, "slurmctld to save its state")


def saved_at(cluster: SlurmCluster) -> float:
    """When slurmctld has last saved its state, unix s; 0: never, or it does just now: the old file goes first."""
    try:
        return (cluster.folder / "state" / "job_state").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def signal_at_sbatch(cluster: SlurmCluster, relay: Relay, number: signal.Signals) -> Path:
    """Before `start`: an sbatch that sends slurmctld a signal first, once, after the returned file was made."""
    armed = relay.folder / "bin" / "armed"
    armed.parent.mkdir()
    real = shutil.which("sbatch", path=relay.env["PATH"])
    pid = cluster.daemons.pid("slurmctld")
    wrapper = armed.with_name("sbatch")
    wrapper.write_text(f'#!/bin/bash\nrm {armed} 2>/dev/null && kill -{number.value} {pid}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    relay.env["PATH"] = f"{armed.parent}:{relay.env['PATH']}"
    return armed


def assert_kept_once(relay: Relay, total: int, slot: int = 0) -> list[int]:
    """Whatever was lost or done twice by ghosts: what the last job stands on is every step, once, in order.

    Returns the attempts of that line of descent, oldest first.
    """
    attempts = relay.attempts(slot)
    line = [attempts[-1]]
    while (parent := relay.read("parent.json", line[0], slot)).get("attempt") is not None:
        assert parent["attempt"] < line[0]
        line.insert(0, parent["attempt"])
    kept: list[int] = []
    for attempt, child in pairwise([*line, None]):
        assert attempt is not None
        first = relay.read("parent.json", attempt, slot)["step"]
        steps = [n for a, n in relay.journal(slot) if a == attempt]
        assert steps == list(range(first + 1, first + 1 + len(steps))), f"attempt {attempt} was run by two"
        last = relay.read("parent.json", child, slot)["step"] if child is not None else total
        assert str(last) in {path.name for path in (relay.attempt_dir(attempt, slot) / "checkpoints").iterdir()}
        kept += [n for n in steps if n <= last]
    assert kept == list(range(1, total + 1))
    return line
