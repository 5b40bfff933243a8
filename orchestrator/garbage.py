"""Python's collector of unreachable objects, kept out of a tick."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Iterator[None]:
    """Python looks for unreachable cycles afterwards. A tick makes a new ledger and no cycles; to walk through the old
    one and half of the new one again and again was a sixth of its time with 2,000 slots (`bench/tick.py`).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
