"""What both sides of a connection do alike about agents at play: packing their batches, and sending no more of them
than the other side has taken.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable

from anchorleg.live.batches import JPEG
from anchorleg.live.ring import MAX_PAYLOAD_BYTES, Cell
from syncd.errors import ProtocolError

#: Of a client's own scene at once: a second at 256 kbit/s.
SLICE_BYTES = 32 * 1024
#: The other side has not taken so many bytes yet, and nothing more leaves while the oldest is older than this: OpenSSH
#: alone would put 2 MiB of old pictures before a policy or a segment.
MOST_UNSEEN_BYTES = 64 * 1024
MOST_UNSEEN_S = 0.3
#: A JPEG is packed already.
_STORED, _PACKED = 0, 6

#: Run id, slot, lane (`anchorleg.live.wanted`).
Agent = tuple[str, int, str]


def shrunk(cell: Cell) -> bytes:
    """What goes over the line."""
    return zlib.compress(cell.payload, _STORED if cell.kind == JPEG else _PACKED)


def grown(payload: bytes) -> bytes:
    """The cell's payload; b"", which is no batch, where it is damaged or larger than a cell."""
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(payload, MAX_PAYLOAD_BYTES + 1)
    except zlib.error:
        return b""
    return found if reader.eof and not reader.unused_data and len(found) <= MAX_PAYLOAD_BYTES else b""


class Credit:
    """What one side of a connection may send of agents at play: nothing queues behind what was not taken. `clock`:
    monotonic s.
    """

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

    def hear(self, number: int) -> None:
        """The other side took all up to this one. Errors: ProtocolError where that was never sent."""
        if number > self._number:
            raise ProtocolError("wire.seen-unsent")
        while self._unseen and self._unseen[0][0] <= number:
            self._unseen.popleft()
