"""A limit on the bandwidth: what was sent is paid for in time, before the next part leaves."""

from __future__ import annotations

import time
from collections.abc import Callable


class Bandwidth:
    """At most `kib_s` KiB a second, 0 for no limit; `clock` is monotonic seconds.

    Nothing is saved up: after a silence the first part leaves at once, and the second when the first is paid for.
    """

    def __init__(self, kib_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.kib_s = kib_s
        self._clock = clock
        self._free_at = 0.0

    def took(self, count: int) -> None:
        """So many bytes were sent."""
        if self.kib_s:
            self._free_at = max(self._free_at, self._clock()) + count / (1024 * self.kib_s)

    def allows(self, count: int, within_s: float) -> bool:
        """Whether so many bytes can be sent in this time."""
        return not self.kib_s or count <= 1024 * self.kib_s * within_s

    def wait_s(self) -> float:
        """How long nothing more may leave; 0: now."""
        return max(0.0, self._free_at - self._clock()) if self.kib_s else 0.0
