"""This machine's agents at play, for watchers elsewhere: told, asked for, and sent while somebody looks.

`trainer actors --stream` is what allows it. Batches leave when no segment waits, the newest of each agent alone, and
never more than the other side has taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from anchorleg.live.batches import BadBatchError, checked
from anchorleg.live.ring import Cell, RingReader
from anchorleg.live.wanted import Asking, Wish, ring_name
from anchorleg.output import Notices
from syncd.streamed import StreamedSlots
from syncd.wire.livemessages import MOST_OFFERS, NeedScene, OwnWish, PlayedSlot
from syncd.wire.scenes import SLICE_BYTES, scene_name
from syncd.wire.session import Session
from syncd.wire.viewing import Upward

#: How often the folder of what may be watched is looked at, and while somebody watches, the rings.
LOOK_EVERY_S, RINGS_EVERY_S = 1.0, 0.2
TIDY_EVERY_S = 60.0


class OwnAgents:
    """What a client does with them, connection after connection. `say` takes a sentence; `monotonic` in s.

    `push`: whether anything is sent at all.
    """

    def __init__(
        self,
        mirror: Path,
        *,
        say: Callable[[str], None],
        push: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = StreamedSlots(mirror, monotonic)
        self._say, self._push, self._monotonic = say, push, monotonic
        self._asking: dict[str, Asking] = {}
        self._readers: dict[OwnWish, RingReader] = {}
        self._newest: dict[OwnWish, Cell] = {}
        self._needed: NeedScene | None = None
        self._offers: tuple[PlayedSlot, ...] = ()
        self._told: tuple[PlayedSlot, ...] = ()
        self._look_at = self._tidy_at = self._rings_at = float("-inf")
        self._notices = Notices()

    @property
    def wait_s(self) -> float:
        """How long nothing is to be done for them, as far as is known."""
        return max(0.0, self._rings_at - self._monotonic()) if self._readers else float("inf")

    def begin(self) -> None:
        """Another connection: the other side knows nothing of them, and wants nothing."""
        self._told, self._needed = (), None
        self._notices = Notices()
        self._want(())

    def turn(self, transport: Session, may_send: Callable[[], bool] = lambda: True) -> None:
        """Tell what may be watched, and send what is wanted. `may_send`: whether segments leave room now.

        Errors: UnreachableError.
        """
        if not self._push:
            return
        self._look()
        upward = transport.live.upward
        if self._offers != self._told:
            self._told = self._offers
            upward.offer(self._offers)
        self._hear(upward)
        self._renew()
        if self._readers and self._monotonic() >= self._rings_at:
            self._rings_at = self._monotonic() + RINGS_EVERY_S
            if may_send():
                self._send(upward)

    def _look(self) -> None:
        now = self._monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        self._offers = tuple(PlayedSlot(run_id=run, slot=slot) for run, slot in self._slots.now()[:MOST_OFFERS])
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY_S
            try:
                self._slots.tidy()
            except OSError as error:
                self._trouble(f"what ended actors left cannot be cleared away: {error.filename}: {error.strerror}")

    def _hear(self, upward: Upward) -> None:
        wanted, needed = upward.asked()
        if wanted is not None:
            offers = {(each.run_id, each.slot) for each in self._offers}
            self._want(tuple(wish for wish in wanted.wishes if (wish.run_id, wish.slot) in offers))
            if wanted.sentence:
                self._trouble(wanted.sentence, cause="the server's word")
        self._needed = needed or self._needed

    def _want(self, wishes: Iterable[OwnWish]) -> None:
        self._readers = {wish: self._readers.get(wish) or RingReader(self._ring(wish)) for wish in wishes}
        self._newest = {wish: cell for wish, cell in self._newest.items() if wish in self._readers}
        for run_id in {wish.run_id for wish in self._readers} - self._asking.keys():
            self._asking[run_id] = Asking(self._slots.live_file(run_id), self._monotonic)

    def _ring(self, wish: OwnWish) -> Path:
        return self._slots.folder(wish.run_id, wish.slot) / ring_name(wish.lane)

    def _renew(self) -> None:
        """Keep the actors told."""
        for run_id, asking in list(self._asking.items()):
            wishes = tuple(Wish(wish.slot, wish.lane, wish.fps) for wish in self._readers if wish.run_id == run_id)
            try:
                asking.renew(wishes)
            except OSError as error:
                self._trouble(f"the actors cannot be told that somebody watches: {error.filename}: {error.strerror}")
            if not wishes:
                del self._asking[run_id]

    def _send(self, upward: Upward) -> None:
        for wish, reader in self._readers.items():
            if cells := reader.newer():
                self._newest[wish] = cells[-1]  # an agent that waits keeps its turn
        for wish, cell in list(self._newest.items()):
            if upward.may_send(len(cell.payload)):
                del self._newest[wish]
                if self._is_good(cell):
                    upward.show(wish, cell)
        if self._needed is not None and upward.may_send(SLICE_BYTES):
            needed, self._needed = self._needed, None
            upward.send_slice(needed, self._slice(needed))

    def _is_good(self, cell: Cell) -> bool:
        try:
            checked(cell.kind, cell.payload)
        except BadBatchError as error:
            self._trouble(f"a batch of this machine's agents is left out: {error}")
            return False
        return True

    def _slice(self, needed: NeedScene) -> bytes:
        """Nothing where it is not there: the other side asks again later, if at all."""
        path = self._slots.folder(needed.run_id, needed.slot) / scene_name(needed.sha256)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return b""
        try:
            return os.pread(fd, SLICE_BYTES, needed.offset)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def _trouble(self, sentence: str, cause: str = "") -> None:
        """Say it once a connection, or another sentence of the same `cause`."""
        self._notices.trouble(sentence, cause)
        self._notices.tell(self._say)
