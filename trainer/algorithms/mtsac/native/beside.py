"""Two things at once: one in this thread, the other in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


class Beside:
    """Does two things: at the same time, or, with one thread, one after the other.

    The other thread has what torch keeps for each thread: as many threads for a product, and no gradients.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(1, "learner", _settle, (torch.get_num_threads(),)) if threads > 1 else None

    @property
    def at_once(self) -> bool:
        """Whether both are done at the same time."""
        return self._pool is not None

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


def _settle(threads: int) -> None:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
