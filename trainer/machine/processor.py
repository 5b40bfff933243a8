"""The processor that this process runs on, by name: what rounds like what depends on it."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
#: proc_cpuinfo(5): of x86, of ARM, of POWER.
_FIELDS = (
    "vendor_id", "cpu family", "model", "model name", "stepping",
    "CPU implementer", "CPU variant", "CPU part", "CPU revision",
    "cpu", "revision",
)  # fmt: skip


def processor() -> str:
    """Maker, family and model; where /proc says none what Python knows of it."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    named = " ".join(filter(None, (found.get(name, "") for name in _FIELDS)))
    return named or platform.processor() or platform.machine()
