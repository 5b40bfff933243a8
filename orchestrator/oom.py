"""Whether the kernel kills for memory: a program that dies of it leaves no word, and Slurm's own comes too late.

slurmstepd writes "Detected 1 oom-kill event" after the last process of a job has ended, so after the job's own record
of the end. The kernel's counter is there at once. Linux and standard library only; elsewhere there is no count.
"""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def kills(proc: Path = PROC, mount: Path = MOUNT) -> int:
    """How many processes the kernel has killed so far in this process's control group, or in its Slurm job's, where the
    steps of the job are; 0 where nobody counts.

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
