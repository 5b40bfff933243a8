"""Processes beside a learner that can be made again."""

from __future__ import annotations

import contextlib
from pathlib import Path

#: The highest there is (proc(5), oom_score_adj).
_FIRST_TO_GO = "1000"


def be_expendable() -> None:
    """Where the job's memory is short the kernel ends this process, and not the larger learner. On Linux only."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
