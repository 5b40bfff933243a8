"""Agents at play, on the client's side of one connection: what is wanted, what has arrived and nobody took yet; and
what is sent of the client's own, never more than the server asked for and has taken.

Of each agent the newest batch is kept, nothing of others. Scenes come in slices, one at a time, so that news never wait
behind more than one. One thread uses what is here; the one that reads the connection calls `put`, with the session's
condition held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from anchorleg.live.ring import Cell
from anchorleg.live.wanted import folder_of
from syncd.errors import ProtocolError
from syncd.wire.arrivals import Receiving
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
from syncd.wire.pacing import Credit
from syncd.wire.protocol import Get
from syncd.wire.scenes import SLICE_BYTES, Agent, Slice, scene_name

#: Sentences of one connection that are told; an honest server has one for each run.
MOST_TOLD = 16


class Sending(Protocol):
    """How a session sends. Errors: UnreachableError."""

    def __call__(self, message: Message, payload: bytes = b"", /) -> None:
        """Send one frame."""


class Upward:
    """The client's own agents. Before some were offered, nothing that the server says of them is kept.

    Errors of its methods: those of `send`; `may_send`: ProtocolError where the server saw what was not sent.
    """

    def __init__(
        self, send: Sending, changed: threading.Condition, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send, self._changed = send, changed
        self._credit = Credit(clock)
        self._is_offered = False
        self._wanted: WantedLive | None = None
        self._needed: NeedScene | None = None
        self._seen: SeenLive | None = None

    def __bool__(self) -> bool:
        return self._wanted is not None or self._needed is not None

    def put(self, message: WantedLive | NeedScene | SeenLive) -> None:
        """Keep the newest of each kind. The condition is held."""
        if not self._is_offered:
            return
        match message:
            case WantedLive():
                self._wanted = message
            case NeedScene():
                self._needed = message
            case SeenLive():
                self._seen = message

    def offer(self, agents: tuple[PlayedSlot, ...]) -> None:
        """These may be watched from now on."""
        with self._changed:
            self._is_offered = True
        self._send(OfferLive(agents=agents))

    def asked(self) -> tuple[WantedLive | None, NeedScene | None]:
        """What the server said since the last call: whom somebody wants to see, and which slice is missing."""
        with self._changed:
            found = self._wanted, self._needed
            self._wanted = self._needed = None
        return found

    def may_send(self, size: int) -> bool:
        """Whether a batch of so many bytes may leave now."""
        with self._changed:
            seen, self._seen = self._seen, None
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


class Viewing:
    """The agents of others, and `upward` the client's own.

    `send` sends a message; `changed` guards what is here and `receiving`, by key. Errors of its methods: those of
    `send`.
    """

    def __init__(
        self, send: Sending, changed: threading.Condition, receiving: dict[str, Receiving], keys: Iterator[int]
    ) -> None:
        self._send, self._changed, self._receiving, self._keys = send, changed, receiving, keys
        self.upward = Upward(send, changed)
        self.slice: Slice | None = None
        self._key = ""
        self._wanted: frozenset[Agent] = frozenset()
        self._ever: set[Agent] = set()
        self._newest: dict[Agent, ShownBatch] = {}
        self._number = self._told_number = 0
        self._sentences: list[str] = []
        self._said: set[str] = set()
        self._shown: dict[str, ShownLive] = {}

    def __bool__(self) -> bool:
        """Whether something has arrived. The condition is held."""
        is_sliced = self.slice is not None and self.slice.done
        has_news = self._number > self._told_number or bool(self._sentences or self._shown)
        return is_sliced or has_news or bool(self.upward)

    def put(self, message: Message, payload: bytes) -> bool:
        """Keep what a frame brings; False where it is none of these. The condition is held.

        Errors: ProtocolError where the numbers of batches do not rise.
        """
        match message:
            case LiveBatch():
                self._put_batch(message, payload)
            case NobodyAsked(run_id=run_id, sentence=sentence):
                if self._wants_run(run_id):
                    self._tell(sentence)
            case ShownLive(run_id=run_id):
                if self._wants_run(run_id):
                    self._shown[run_id] = message
            case WantedLive() | NeedScene() | SeenLive():
                self.upward.put(message)
            case _:
                return False
        return True

    def _put_batch(self, message: LiveBatch, payload: bytes) -> None:
        if message.number <= self._number:
            raise ProtocolError("wire.live-count")
        self._number = message.number
        agent = (message.run_id, message.slot, message.lane)
        if agent in self._wanted:
            self._newest[agent] = ShownBatch(*agent, message.kind, grown(payload))
        elif agent not in self._ever:
            self._tell("the other side shows agents that nobody here asked for: they are left out")

    def _wants_run(self, run_id: str) -> bool:
        return any(run_id == wanted for wanted, _, _ in self._wanted)

    def _tell(self, sentence: str) -> None:
        if sentence not in self._said and len(self._said) < MOST_TOLD:
            self._said.add(sentence)
            self._sentences.append(sentence)

    def watch(self, wishes: tuple[WireWish, ...]) -> None:
        """Want these from now on, and nothing of others; (): nothing any more."""
        with self._changed:
            self._wanted = frozenset((wish.run_id, wish.slot, wish.lane) for wish in wishes)
            self._ever |= self._wanted
            self._newest = {agent: batch for agent, batch in self._newest.items() if agent in self._wanted}
        self._send(WatchLive(wishes=wishes))

    def take(self) -> tuple[list[ShownBatch], list[str]]:
        """The newest batch of each agent that came since the last call, and sentences for the user.

        The server hears of it: what it sends is bounded by what was taken.
        """
        with self._changed:
            batches, sentences = list(self._newest.values()), self._sentences
            self._newest, self._sentences = {}, []
            number, is_news = self._number, self._number > self._told_number
            self._told_number = number
        if is_news:
            self._send(SeenLive(number=number))
        return batches, sentences

    def take_shown(self) -> list[ShownLive]:
        """Whose agents may be watched, of each run of which that changed since the last call."""
        with self._changed:
            found, self._shown = list(self._shown.values()), {}
        return found

    def ask(self, agent: Agent, sha256: str, offset: int) -> None:
        """See `syncd.wire.scenes.Slicing`."""
        self.forget()
        path = "/".join((*folder_of(*agent), scene_name(sha256)))
        self._key = str(next(self._keys))
        with self._changed:
            self.slice = self._receiving[self._key] = Slice(offset)
        self._send(Get(key=self._key, path=path, offset=offset, most=SLICE_BYTES))

    def sliced(self) -> Slice | None:
        """See `Slicing`."""
        with self._changed:
            found = self.slice
        if found is None or not found.done:
            return None
        self.forget()
        return found

    def forget(self) -> None:
        """See `Slicing`."""
        with self._changed:
            self._receiving.pop(self._key, None)
            self.slice = None
