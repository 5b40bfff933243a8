"""How fast a side of a connection may look, and send. `clock`: monotonic seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

#: A look waits this many times as long as the last one took: a large folder of a network is spared.
IDLE_SHARE = 10.0
MOST_PAUSE_S = 30.0


class Bandwidth:
    """At most `kib_s` KiB a second, 0 for no limit: what was sent is paid for in time.

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

    def wait_s(self) -> float:
        """How long nothing more may leave; 0: now."""
        return max(0.0, self._free_at - self._clock()) if self.kib_s else 0.0


class Pace:
    """When a repeated look is due: `least_s` after the last, or `IDLE_SHARE` times as long as that took, to 30 s."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self.next_at = 0.0

    def took(self, now: float, spent_s: float) -> None:
        """A look has ended `now`, that took so long."""
        self.next_at = now + min(max(self._least_s, IDLE_SHARE * spent_s), MOST_PAUSE_S)
