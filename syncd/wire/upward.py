"""A client's own agents at play, on its side of one connection: whom somebody watches, and what is sent of them.

Nothing is sent that the server did not ask for, and never more than it has taken (`syncd.wire.credit`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from anchorleg.live.ring import Cell
from syncd.wire.credit import Credit
from syncd.wire.fields import Message
from syncd.wire.livemessages import (
    LiveBatch,
    NeedScene,
    OfferLive,
    OwnWish,
    PlayedSlot,
    SceneSlice,
    SeenLive,
    WantedLive,
    shrunk,
)


class Sending(Protocol):
    """How a session sends. Errors: UnreachableError."""

    def __call__(self, message: Message, payload: bytes = b"", /) -> None:
        """Send one frame."""


class UpwardArrivals:
    """What a server said of the client's own agents. Nothing here is locked: see `syncd.wire.arrivals`.

    `is_offered`: whether some were ever offered; before that, nobody takes what a server says of them.
    """

    def __init__(self) -> None:
        self.is_offered = False
        self.wanted: WantedLive | None = None
        self.needed: NeedScene | None = None
        self.seen: SeenLive | None = None

    def __bool__(self) -> bool:
        return self.wanted is not None or self.needed is not None

    def put(self, message: WantedLive | NeedScene | SeenLive) -> None:
        """Keep the newest of each kind."""
        if not self.is_offered:
            return
        match message:
            case WantedLive():
                self.wanted = message
            case NeedScene():
                self.needed = message
            case SeenLive():
                self.seen = message


class Upward:
    """What a client does with its own agents over one connection. One thread uses it.

    Errors of its methods: those of `send`; `may_send`: ProtocolError where the server saw what was not sent.
    """

    def __init__(
        self,
        send: Sending,
        changed: threading.Condition,
        arrivals: UpwardArrivals,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._changed, self._arrivals = send, changed, arrivals
        self._credit = Credit(clock)

    def offer(self, agents: tuple[PlayedSlot, ...]) -> None:
        """These may be watched from now on."""
        with self._changed:
            self._arrivals.is_offered = True
        self._send(OfferLive(agents=agents))

    def asked(self) -> tuple[WantedLive | None, NeedScene | None]:
        """What the server said since the last call: whom somebody wants to see, and which slice is missing."""
        arrivals = self._arrivals
        with self._changed:
            found = arrivals.wanted, arrivals.needed
            arrivals.wanted = arrivals.needed = None
        return found

    def may_send(self, size: int) -> bool:
        """Whether a batch of so many bytes may leave now."""
        with self._changed:
            seen, self._arrivals.seen = self._arrivals.seen, None
        if seen is not None:
            self._credit.hear(seen)
        return self._credit.allows(size)

    def show(self, wish: OwnWish, cell: Cell) -> None:
        """Send a batch of the agent that is wanted by this."""
        payload = shrunk(cell)
        number = self._credit.sent(len(payload))
        said = LiveBatch(run_id=wish.run_id, slot=wish.slot, lane=wish.lane, number=number, kind=cell.kind)
        self._send(said, payload)

    def send_slice(self, needed: NeedScene, data: bytes) -> None:
        """Send the slice that was missing; it ends the scene where it is shorter than a whole one."""
        self._send(SceneSlice(sha256=needed.sha256, offset=needed.offset), data)
