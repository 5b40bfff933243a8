"""Rows of a training so long that nothing may hold them all, and how much memory somebody took to go through them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from anchorleg.files import as_line

Found = TypeVar("Found")

_ROWS = 2000


def write_long_history(metrics: Path) -> int:
    """Make the file hold some 7 MB of rows, of one task and many measures; its bytes."""
    measures = {f"measure_{k}": k / 7 for k in range(100)}
    tasks = {"reach": {"episodes": 1, "success": 0.5, "return": 1.5}}
    rows = ({"from": 10 * k, "to": 10 * (k + 1), "at": 7.0 + k, "tasks": tasks, **measures} for k in range(_ROWS))
    return metrics.write_bytes(b"".join(map(as_line, rows)))


def with_its_peak(find: Callable[[], Found]) -> tuple[Found, int]:
    """What `find` finds, and the most bytes that Python and numpy held for it at once."""
    tracemalloc.start()
    try:
        return find(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
