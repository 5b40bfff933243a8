"""Agents at play, on the client's side of one connection: what is wanted, and what has arrived and nobody took yet.

Of each agent the newest batch is kept, nothing of others. Scenes come in slices, one at a time, so that news never wait
behind more than one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from anchorleg.live.wanted import folder_of
from syncd.errors import ProtocolError, SyncError
from syncd.wire.livemessages import LiveBatch, NobodyAsked, SeenLive, ShownLive, WatchLive, WireWish, grown
from syncd.wire.protocol import Get
from syncd.wire.scenes import SLICE_BYTES, Agent, Slice, scene_name
from syncd.wire.upward import Sending, Upward, UpwardArrivals

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
