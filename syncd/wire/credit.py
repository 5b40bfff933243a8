"""How much of agents at play may be under way, downwards and upwards: nothing queues behind what was not taken.

OpenSSH alone would put 2 MiB of old pictures before a policy or a segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from syncd.errors import ProtocolError
from syncd.wire.livemessages import SeenLive

#: What the other side has not taken yet: so many bytes, and nothing more while the oldest is older than this.
MOST_UNSEEN_BYTES = 64 * 1024
MOST_UNSEEN_S = 0.3


class Credit:
    """What one side of a connection may send of agents at play. `clock`: monotonic s."""

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
