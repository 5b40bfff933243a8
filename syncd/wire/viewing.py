"""Agents at play, on the client's side of one connection: what is wanted, what has arrived and nobody took yet; and
what is sent of the client's own, never more than the server asked for and has taken (`syncd.wire.credit`).

Of each agent the newest batch is kept, nothing of others. Scenes come in slices, one at a time, so that news never wait
behind more than one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from anchorleg.live.ring import Cell
from anchorleg.live.wanted import folder_of
from syncd.errors import ProtocolError, SyncError
from syncd.wire.credit import Credit
from syncd.wire.fields import Message
from syncd.wire.livemessages import (
    LiveBatch,
    NeedScene,
    NobodyAsked,
    OfferLive,
    OwnWish,
    PlayedSlot,
    SceneSlice,
    SeenLive,
    ShownLive,
    WantedLive,
    WatchLive,
    WireWish,
    grown,
    shrunk,
)
from syncd.wire.protocol import Get
from syncd.wire.scenes import SLICE_BYTES, Agent, Slice, scene_name

#: Sentences of one connection that are told; an honest server has one for each run.
MOST_TOLD = 16


class Receiving(Protocol):
    """What takes the DATA, END and GONE of one GET."""

    def append(self, offset: int, payload: bytes) -> None:
        """The next bytes."""

    def end(self) -> None:
        """The other side has sent everything."""

    def finish(self, error: SyncError | None) -> None:
        """No more comes; `error` says why it is not whole."""


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


@dataclass(frozen=True)
class ShownBatch:
    """One batch of one agent, as the server sent it: not checked yet."""

    run_id: str
    slot: int
    lane: str
    kind: int
    payload: bytes


class LiveArrivals:
    """What a server said of agents at play. Nothing here is locked: see `syncd.wire.arrivals`."""

    def __init__(self) -> None:
        self.slice: Slice | None = None
        self.upward = UpwardArrivals()
        self._wanted: frozenset[Agent] = frozenset()
        self._ever: set[Agent] = set()
        self._newest: dict[Agent, ShownBatch] = {}
        self._number = self._told_number = 0
        self._sentences: list[str] = []
        self._said: set[str] = set()
        self._shown: dict[str, ShownLive] = {}

    def __bool__(self) -> bool:
        is_sliced = self.slice is not None and self.slice.done
        has_news = self._number > self._told_number or bool(self._sentences or self._shown)
        return is_sliced or has_news or bool(self.upward)

    def want(self, wishes: tuple[WireWish, ...]) -> None:
        """From now on these, and nothing of others."""
        self._wanted = frozenset((wish.run_id, wish.slot, wish.lane) for wish in wishes)
        self._ever |= self._wanted
        self._newest = {agent: batch for agent, batch in self._newest.items() if agent in self._wanted}

    def put(self, message: LiveBatch, payload: bytes) -> None:
        """A batch came. Errors: ProtocolError where their numbers do not rise."""
        if message.number <= self._number:
            raise ProtocolError("wire.live-count")
        self._number = message.number
        agent = (message.run_id, message.slot, message.lane)
        if agent in self._wanted:
            self._newest[agent] = ShownBatch(*agent, message.kind, grown(payload))
        elif agent not in self._ever:
            self._tell("the other side shows agents that nobody here asked for: they are left out")

    def put_sentence(self, message: NobodyAsked) -> None:
        """Nobody over there is asked; of a run that is wanted, it is told."""
        if any(message.run_id == run_id for run_id, _, _ in self._wanted):
            self._tell(message.sentence)

    def put_shown(self, message: ShownLive) -> None:
        """Whose agents may be watched; of a run that is wanted, it is kept."""
        if any(message.run_id == run_id for run_id, _, _ in self._wanted):
            self._shown[message.run_id] = message

    def take_shown(self) -> list[ShownLive]:
        """What was said of that since the last call."""
        found, self._shown = list(self._shown.values()), {}
        return found

    def _tell(self, sentence: str) -> None:
        if sentence not in self._said and len(self._said) < MOST_TOLD:
            self._said.add(sentence)
            self._sentences.append(sentence)

    def take(self) -> tuple[list[ShownBatch], list[str], int | None]:
        """(batches, sentences, the number of the last batch that came, where that was not told before)."""
        batches, sentences = list(self._newest.values()), self._sentences
        self._newest, self._sentences = {}, []
        number = self._number if self._number > self._told_number else None
        self._told_number = self._number
        return batches, sentences, number


class Viewing:
    """What a client does with agents at play over one connection. One thread uses it.

    `send` sends a message; `changed` guards `live` and `receiving`, by key. Errors of its methods: those of `send`.
    """

    def __init__(
        self,
        send: Sending,
        changed: threading.Condition,
        live: LiveArrivals,
        receiving: dict[str, Receiving],
        keys: Iterator[int],
    ) -> None:
        self._send, self._changed, self._live = send, changed, live
        self._receiving, self._keys = receiving, keys
        self._key = ""
        self.upward = Upward(send, changed, live.upward)

    def watch(self, wishes: tuple[WireWish, ...]) -> None:
        """Want these from now on; (): nothing any more."""
        with self._changed:
            self._live.want(wishes)
        self._send(WatchLive(wishes=wishes))

    def take(self) -> tuple[list[ShownBatch], list[str]]:
        """The newest batch of each agent that came since the last call, and sentences for the user.

        The server hears of it: what it sends is bounded by what was taken.
        """
        with self._changed:
            batches, sentences, number = self._live.take()
        if number is not None:
            self._send(SeenLive(number=number))
        return batches, sentences

    def take_shown(self) -> list[ShownLive]:
        """Whose agents may be watched, of each run of which that changed since the last call."""
        with self._changed:
            return self._live.take_shown()

    def ask(self, agent: Agent, sha256: str, offset: int) -> None:
        """See `syncd.wire.scenes.Slicing`."""
        self.forget()
        path = "/".join((*folder_of(*agent), scene_name(sha256)))
        self._key = str(next(self._keys))
        with self._changed:
            self._live.slice = self._receiving[self._key] = Slice(offset)
        self._send(Get(key=self._key, path=path, offset=offset, most=SLICE_BYTES))

    def sliced(self) -> Slice | None:
        """See `Slicing`."""
        with self._changed:
            found = self._live.slice
        if found is None or not found.done:
            return None
        self.forget()
        return found

    def forget(self) -> None:
        """See `Slicing`."""
        with self._changed:
            self._receiving.pop(self._key, None)
            self._live.slice = None
