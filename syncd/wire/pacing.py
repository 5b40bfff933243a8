"""How fast a side of a connection may look, and send. `clock`: monotonic seconds."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator

from syncd.errors import ProtocolError
from syncd.wire.livemessages import SeenLive

#: A look waits for this many times the processor time that the last one took, but no longer than this many intervals.
IDLE_SHARE = 500.0
MOST_INTERVALS = 4.0
#: Of agents at play the other side has not taken so many bytes yet, and nothing more leaves while the oldest is older
#: than this: OpenSSH alone would put 2 MiB of old pictures before a policy or a segment.
MOST_UNSEEN_BYTES = 64 * 1024
MOST_UNSEEN_S = 0.3


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

    def allows(self, count: int, within_s: float) -> bool:
        """Whether so many bytes can be sent in this time."""
        return not self.kib_s or count <= 1024 * self.kib_s * within_s

    def wait_s(self) -> float:
        """How long nothing more may leave; 0: now."""
        return max(0.0, self._free_at - self._clock()) if self.kib_s else 0.0


class Credit:
    """What one side of a connection may send of agents at play: nothing queues behind what was not taken."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._number = 0
        self._unseen: deque[tuple[int, int, float]] = deque()

    def allows(self, size: int) -> bool:
        """Whether a batch of so many bytes may leave now."""
        if not self._unseen:
            return True
        is_late = self._clock() - self._unseen[0][2] > MOST_UNSEEN_S
        return not is_late and sum(each[1] for each in self._unseen) + size < MOST_UNSEEN_BYTES

    def sent(self, size: int) -> int:
        """One more leaves; its number."""
        self._number += 1
        self._unseen.append((self._number, size, self._clock()))
        return self._number

    def hear(self, said: SeenLive) -> None:
        """The other side took all up to this one. Errors: ProtocolError where that was never sent."""
        if said.number > self._number:
            raise ProtocolError("wire.seen-unsent")
        while self._unseen and self._unseen[0][0] <= said.number:
            self._unseen.popleft()


class Pace:
    """When a repeated look is due: `least_s` after the last, or later where it costs much."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self.next_at = 0.0

    @contextlib.contextmanager
    def looking(self, now: float, spent_s: Callable[[], float] = time.thread_time) -> Iterator[None]:
        """One look, at `now`; sets `next_at`. `spent_s`: the processor time that looks took until now."""
        before_s = spent_s()
        try:
            yield
        finally:
            cost_s = spent_s() - before_s
            self.next_at = now + min(max(self._least_s, IDLE_SHARE * cost_s), MOST_INTERVALS * self._least_s)
