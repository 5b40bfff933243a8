"""The processor that this process runs on, by name: what rounds like what depends on it."""

from __future__ import annotations

import platform
from pathlib import Path

_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping")


def processor() -> str:
    """Maker, family and model; on systems without /proc what Python knows of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(filter(None, (found.get(name, "") for name in _FIELDS)))
