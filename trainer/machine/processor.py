"""The processor that this process runs on, by name, and how it is used: what rounds like what depends on both."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
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


def processor() -> str:
    """Maker, family and model; where /proc says none what Python knows of it."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    named = " ".join(filter(None, (found.get(name, "") for name in _FIELDS)))
    return named or platform.processor() or platform.machine()


def variables(environment: Mapping[str, str] = os.environ) -> str:
    """The environment's variables that choose instructions, "NAME=value" each; "none" where none is set."""
    told = [f"{name}={environment[name]}" for name in _CHOOSERS if environment.get(name)]
    return " ".join(told) or "none"
