"""How the job in which this process runs ends: when it will be killed, whether the kernel kills for memory, and what it
left that nobody finds. Standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

#: `squeue` asked once for the end of the job, where Slurm is older than SLURM_JOB_END_TIME (23.02).
SQUEUE_TIMEOUT_S = 20.0
#: A site's prolog and the script's own setup come between the job's start and ours. What is more than this, or before
#: the start, is another clock; should it be a prolog after all, Slurm's own signal still comes in time.
LATEST_START_S = 600.0
CLOCK_SLACK_S = 60.0
_TIMES = re.compile(r"^(\d+) (\d+)$", re.MULTILINE)
#: Names beside checkpoints that nobody takes for one: of a save that is under way or was cut short, TensorBoard's.
_NOT_MEANT = re.compile(r"^(?:\.|tmp|events\.out\.)|[^a-z]tmp(?![a-z])|\.part(?:ial)?$|unfinished", re.IGNORECASE)

#: Where the kernel counts what it kills. Linux only; elsewhere there is no count.
PROC = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def end_of_job(environ: dict[str, str], started_at: float, limit_s: float, *, ask: bool = True) -> float:
    """Unix seconds, on this node's clock, at which the job will be killed: what the scheduler says, else start + limit.

    A node whose clock is hours ahead would take the scheduler's time for past, and hand over at once, job after job.
    `ask`: whether squeue may be asked where the environment does not say (some 50 ms, or seconds where it is busy).
    """
    if environ.get("ANCHORLEG_END_TIME", "").isdigit():
        return float(environ["ANCHORLEG_END_TIME"])
    start, end = environ.get("SLURM_JOB_START_TIME", ""), environ.get("SLURM_JOB_END_TIME", "")
    if ask and not end.isdigit():
        start, end = _asked(environ)
    if not end.isdigit():
        return started_at + limit_s
    if start.isdigit() and not -CLOCK_SLACK_S <= started_at - float(start) <= LATEST_START_S:
        return started_at + float(end) - float(start)
    return float(end)


def misnamed(folder: Path) -> str:
    """A name in `folder` that holds a step and is none: no next job finds what is there. Empty where there is no such
    name; one that looks unfinished does not count. Errors: OSError.
    """
    names = (name for name in sorted(os.listdir(folder)) if name.isprintable() and not _NOT_MEANT.search(name))
    return next((name for name in names if not name.isdigit() and any(letter.isdigit() for letter in name)), "")


def _asked(environ: dict[str, str]) -> tuple[str, str]:
    """(start, end) of this job, by squeue; empty where it does not say."""
    if job_id := environ.get("SLURM_JOB_ID"):
        try:
            answer = subprocess.run(
                ["squeue", "-h", "-j", job_id, "-o", "%S %e", "-a"],
                env={**environ, "SLURM_TIME_FORMAT": "%s"},
                capture_output=True,
                text=True,
                timeout=SQUEUE_TIMEOUT_S,
                check=False,
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            answer = ""
        if told := _TIMES.search(answer):  # a site's wrapper may print lines of its own
            return told[1], told[2]
    return "", ""


def oom_kills(proc: Path = PROC, mount: Path = MOUNT) -> int:
    """How many processes the kernel has killed for memory so far in this process's control group, or in its Slurm
    job's, where the steps of the job are; 0 where nobody counts. A program that dies of it leaves no word, and
    slurmstepd's own ("Detected 1 oom-kill event") comes after the job's record of its end.

    Source: the kernel's admin-guide/cgroup-v2.rst (`memory.events`) and cgroup-v1/memory.rst (`memory.oom_control`).
    """
    try:
        lines = [line.split(":", 2) for line in proc.read_text(errors="surrogateescape").splitlines()]
    except OSError:
        return 0
    paths = []
    for _, controllers, group in lines:
        own = Path(group.lstrip("/"))
        for here in (own, *(above for above in own.parents if above.name.startswith("job_"))):
            if controllers == "":
                paths += [mount / here / "memory.events", mount / "unified" / here / "memory.events"]
            elif "memory" in controllers.split(","):
                paths.append(mount / "memory" / here / "memory.oom_control")
    return max((_count(path) for path in paths), default=0)


def _count(path: Path) -> int:
    try:
        fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines())
        return int(fields.get("oom_kill", "0"))
    except (OSError, ValueError):
        return 0
