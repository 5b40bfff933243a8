"""Two things at once: one in this thread, the other in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


class Beside:
    """Does two things: at the same time, or, with one thread or where no other can be started, one after the other.

    The other thread has what torch and its libraries keep for each thread: as many threads for a product, no gradients.
    """

    def __init__(self, threads: int) -> None:
        self._pool = _started() if threads > 1 else None

    @property
    def threads(self) -> int:
        """How many work at the same time."""
        return 1 if self._pool is None else 2

    def both(self, one: Callable[[], None], other: Callable[[], None]) -> None:
        """Returns when both are done. Errors: those of either."""
        if self._pool is None:
            one()
            other()
            return
        running = self._pool.submit(other)
        try:
            one()
        finally:
            running.result()


def _started() -> ThreadPoolExecutor | None:
    """A thread that runs and has its settings; None: the system has none left."""
    pool = ThreadPoolExecutor(1, "learner", _settle, (torch.get_num_threads(),))
    try:
        pool.submit(int).result()
    except RuntimeError:
        return None
    return pool


def _settle(threads: int) -> None:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
