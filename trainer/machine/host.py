"""What of this machine a process may use: cores and memory, by affinity, by cgroup, by what is free; and its processor
by name, and how it is used: what rounds like what depends on both.
"""

from __future__ import annotations

import os
import platform as of_python
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
#: proc_cpuinfo(5): of x86, of ARM, of POWER.
_FIELDS = (
    "vendor_id", "cpu family", "model", "model name", "stepping",
    "CPU implementer", "CPU variant", "CPU part", "CPU revision",
    "cpu", "revision",
)  # fmt: skip
#: By these OpenBLAS, NumPy, torch, MKL and oneDNN take other instructions than the processor's best (their manuals).
_CHOOSERS = (
    "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", "ATEN_CPU_CAPABILITY",
    "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE",
    "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "DNNL_DEFAULT_FPMATH_MODE",
)  # fmt: skip
#: `sysctl` and `vm_stat` answer in milliseconds.
_COMMAND_TIMEOUT_S = 5.0
#: cgroup 1 writes "no limit" as the largest multiple of a page; no machine of ours has this much.
_UNLIMITED_BYTES = 2**60
#: What vm_stat calls free at once, or as soon as somebody asks.
_MAC_FREE = ("free", "inactive", "speculative", "purgeable")


@dataclass(frozen=True)
class Host:
    """A machine as one process sees it. `memory_bytes` and `free_bytes` None: the system does not say."""

    name: str
    cores: int
    memory_bytes: int | None
    free_bytes: int | None


def read_host(root: Path = Path("/"), platform: str = sys.platform) -> Host:
    """This machine now. `root` is where /proc and /sys lie."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(root)
    if quota is not None:
        cores = min(cores, max(1, int(quota)))
    total, free = _mac_memory() if platform == "darwin" else memory_of(_text(root / "proc/meminfo"))
    limit, left = memory_limit(root)
    return Host(socket.gethostname(), cores, _least(total, limit), _least(free, left))


def processor(cpuinfo: Path = CPUINFO) -> str:
    """Maker, family and model; where /proc says none what Python knows of it."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    named = " ".join(filter(None, (found.get(name, "") for name in _FIELDS)))
    return named or of_python.processor() or of_python.machine()


def variables(environment: Mapping[str, str] = os.environ) -> str:
    """The environment's variables that choose instructions, "NAME=value" each; "none" where none is set."""
    told = [f"{name}={environment[name]}" for name in _CHOOSERS if environment.get(name)]
    return " ".join(told) or "none"


def cpu_quota(root: Path) -> float | None:
    """Cores that the cgroups of this process allow (cpu.max, or cfs_quota_us of cgroup 1); None: no limit."""
    found = []
    for folder in _folders(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not period:
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.strip().isdigit() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_limit(root: Path) -> tuple[int | None, int | None]:
    """(limit, what is left of it) in bytes by the tightest cgroup of this process; None: no limit.

    What the page cache holds counts as used there; the kernel gives it back when it is needed, and so do we.
    """
    limits, lefts = [], []
    for folder in _folders(root, "memory"):
        limit = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        used = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes")
        if limit.isdigit() and int(limit) < _UNLIMITED_BYTES:
            limits.append(int(limit))
            cache = re.search(r"^(?:total_)?inactive_file (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
            if used.isdigit():
                lefts.append(max(0, int(limit) - int(used) + (int(cache[1]) if cache else 0)))
    return min(limits, default=None), min(lefts, default=None)


def memory_of(meminfo: str) -> tuple[int | None, int | None]:
    """(total, available) in bytes from the text of /proc/meminfo."""
    values = dict(re.findall(r"^(\w+):\s+(\d+) kB$", meminfo, re.MULTILINE))
    total, free = (values.get(name) for name in ("MemTotal", "MemAvailable"))
    return int(total) * 1024 if total else None, int(free) * 1024 if free else None


def mac_free(vm_stat: str) -> int | None:
    """Bytes that are free or can be at once, from the text of macOS's `vm_stat`."""
    page = re.search(r"page size of (\d+) bytes", vm_stat)
    pages = dict(re.findall(r"^Pages ([a-z]+):\s+(\d+)\.$", vm_stat, re.MULTILINE))
    if page is None or "free" not in pages:
        return None
    return int(page[1]) * sum(int(pages.get(name, 0)) for name in _MAC_FREE)


def _mac_memory() -> tuple[int | None, int | None]:
    total = _said(["sysctl", "-n", "hw.memsize"]).strip()
    return int(total) if total.isdigit() else None, mac_free(_said(["vm_stat"]))


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The cgroup folders that limit this process for `controller`, in cgroup 1 and 2, from its own up to the top.

    In a container the path that /proc shows may not be mounted; the top then is the container's own.
    """
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            base = mount
        elif controller in names.split(","):
            base = mount / controller
        else:
            continue
        place = base / path.lstrip("/")
        while place != base and base in place.parents:
            yield place
            place = place.parent
        yield base


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
