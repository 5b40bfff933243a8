"""The client: one pass over a connection (`sync_once`), or connections for ever (`Client.watch`).

::

    connecting → syncing → live → (broken) offline → connecting …     `syncd.laptop.backoff` says when, and when not

A kill at any instruction costs nothing: policies are let in by `syncd.laptop.mirror`, segments stay in the outbox until
the other side has them durably. So a signal may end the client wherever it stands.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from syncd.errors import StorageError, SyncError
from syncd.laptop.backoff import Backoff, jittered, made_progress, stops
from syncd.laptop.exchange import Exchange, ExchangeCounts
from syncd.laptop.liveagents import LiveAgents
from syncd.laptop.mirror import Arrival, Mirror
from syncd.laptop.status import StatusWriter
from syncd.outbox import Outbox, observe
from syncd.shared.layout import disk_errors
from syncd.wire.session import Session

#: How long the client listens for news before it looks into the outbox. News end it at once.
LISTEN_S = 1.0
#: How often a client that lives for weeks clears away what nobody asks for any more.
TIDY_EVERY_S = 3_600.0
#: Listing again because files were gone is for a publisher that overtook us; more often than this it is broken.
MAX_LISTINGS = 5


@dataclass(frozen=True)
class Wishes:
    """What a client is to do. `every_s` 0: at once; else fetch and send in one go, this often."""

    pull: bool = True
    push: bool = True
    every_s: float = 0.0


def sync_once(
    transport: Session,
    folder: Path,
    wishes: Wishes,
    *,
    say: Callable[[str], None] = lambda _: None,
    arrived: Callable[[Arrival, bool], None] = lambda _arrival, _announced: None,
) -> ExchangeCounts:
    """Fetch all that is new, send all that waits, over `transport`, once; the caller closes it.

    Errors: UnreachableError (what came so far is kept), StorageError, RemoteError.
    """
    mirror, outbox = Mirror(folder), Outbox(folder)
    exchange = Exchange(transport, mirror, outbox, pull=wishes.pull, push=wishes.push, say=say, arrived=arrived)
    if trouble := _tidied(mirror, outbox):
        exchange.counts.troubles.append(trouble)
    with disk_errors(folder):
        for _ in range(MAX_LISTINGS):
            had = exchange.counts.bytes
            exchange.take(transport.listing(), announced=False)
            while exchange.wants:
                exchange.fetch_one()
            if not exchange.something_was_gone:
                break
        else:
            if exchange.counts.bytes == had:  # else newer ones came, from a publisher that is faster than this line
                exchange.counts.troubles.append("files were removed there before they could be fetched: run this again")
        while exchange.more_waits:
            exchange.send_some()
    return exchange.counts


def _tidied(mirror: Mirror, outbox: Outbox) -> str:
    """Bound what is kept of overtaken policies and of refused segments; what cannot be cleared away, as a sentence."""
    try:
        with disk_errors(mirror.folder):
            mirror.tidy()
            outbox.tidy()
    except StorageError as error:
        return str(error)
    return ""


class Client:
    """Keeps the mirror `folder` in step with one remote. `connect` opens a transport, or raises a SyncError.

    `say` takes sentences for the user or the log. Impure things are defaults, so that tests pass their own.
    """

    def __init__(
        self,
        folder: Path,
        connect: Callable[[], Session],
        writer: StatusWriter,
        wishes: Wishes,
        *,
        say: Callable[[str], None] = print,
        arrived: Callable[[Arrival, float | None], None] = lambda _arrival, _latency_s: None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.writer = writer
        self._folder, self._connect, self._wishes = folder, connect, wishes
        self._say, self._tell_arrival = say, arrived
        self._backoff = Backoff()
        self._wall, self._monotonic, self._sleep, self._chance = wall, monotonic, sleep, chance
        self._mirror, self._outbox = Mirror(folder), Outbox(folder)
        self._transport: Session | None = None
        self._was_live = False
        self._last_said = ""
        self._clock_offset_s: float | None = None
        self._tidy_at = float("-inf")

    def watch(self) -> None:
        """Until a signal's exception, or an error that a person must mend, comes out of it."""
        observer = observe(self._outbox.path / "new", self._interrupt) if self._wishes.push else None
        try:
            while True:
                self._one_connection()
        finally:
            if observer is not None:
                observer.stop()
            self.writer.tell("stopped", next_try_at=None)

    def _interrupt(self) -> None:
        """Listen no longer: something is there to send. From the observer's thread."""
        if (transport := self._transport) is not None:
            transport.interrupt()

    def _tidy(self) -> None:
        """As `_tidied`, where it is time to."""
        if self._monotonic() >= self._tidy_at:
            self._tidy_at = self._monotonic() + TIDY_EVERY_S
            if trouble := _tidied(self._mirror, self._outbox):
                self._voice_trouble(trouble)

    def _one_connection(self) -> None:
        """Connect, live, and wait before the next try. Errors: those that a person must mend."""
        self._tidy()
        self.writer.tell("connecting", next_try_at=None)
        began = self._monotonic()
        exchange: Exchange | None = None
        try:
            transport = self._transport = self._connect()
            try:
                transport.tick = self.writer.write
                self.writer.tell(transport=transport.name)
                exchange = self._exchange(transport)
                with disk_errors(self._folder):
                    self._live(exchange)
            finally:
                self._transport = None
                transport.close()
                facts = transport.facts()
                self._backoff = replace(self._backoff, spread_s=facts.spread_s)
                self.writer.facts(facts)
        except SyncError as error:
            if stops(error, was_live=self._was_live):
                self.writer.tell("offline", error=str(error), next_try_at=None)
                raise
            lived_s = self._monotonic() - began if exchange is not None else 0.0
            moved = exchange.counts.moved if exchange is not None else 0
            if made_progress(lived_s=lived_s, moved=moved):
                self._backoff = self._backoff.progressed()
            self._wait(str(error))

    def _exchange(self, transport: Session) -> Exchange:
        return Exchange(
            transport,
            self._mirror,
            self._outbox,
            pull=self._wishes.pull,
            push=self._wishes.push,
            patient=True,
            say=self._voice_trouble,
            arrived=self._arrived,
            monotonic=self._monotonic,
            chance=self._chance,
        )

    def _live(self, exchange: Exchange) -> None:
        """Serve one connection until it breaks. Errors: SyncError."""
        transport = exchange.transport
        self.writer.tell("syncing")
        agents = LiveAgents(
            transport, self._mirror, say=self._voice_trouble, pull=self._wishes.pull, push=self._wishes.push,
            monotonic=self._monotonic,
        )  # fmt: skip
        exchange.take(transport.listing(), announced=False)
        self._was_live = True
        round_at = self._monotonic()
        while True:
            is_round = self._monotonic() >= round_at
            if is_round:
                if exchange.wants:  # one file, and some segments: between two such steps newer news are heard
                    exchange.fetch_one()
                exchange.send_some()
                if not (exchange.wants or exchange.more_waits):
                    round_at = self._monotonic() + jittered(self._wishes.every_s, self._chance())
            self._describe(exchange)
            self._tidy()
            agents.turn(lambda: not exchange.wants, lambda: not exchange.more_waits)
            busy = is_round and (exchange.wants or exchange.more_waits)
            to_round_s = round_at - self._monotonic()
            patience_s = min(LISTEN_S, agents.wait_s, to_round_s if to_round_s > 0 else LISTEN_S)
            exchange.take(transport.wait(0.0 if busy else patience_s), announced=True)
            if exchange.must_list():
                exchange.take(transport.listing(), announced=False)

    def _describe(self, exchange: Exchange) -> None:
        facts = exchange.transport.facts()
        self._clock_offset_s = facts.clock_offset_s
        self.writer.facts(facts)
        if self.writer.status.state != "live" and not exchange.wants:
            self._voice(f"connected to {self.writer.status.remote} ({exchange.transport.name})")
            self.writer.tell("live", error="")

    def _arrived(self, arrival: Arrival, announced: bool) -> None:
        latency_s = None
        latency = self.writer.status.latency
        if announced and arrival.manifest is not None and self._clock_offset_s is not None:
            latency_s = self._wall() + self._clock_offset_s - arrival.manifest.created_at
            latency = latency.with_one(latency_s)
        self.writer.tell(latency=latency, policies=self.writer.status.policies + 1)
        self._tell_arrival(arrival, latency_s)

    def _wait(self, sentence: str) -> None:
        """Offline until the backoff is over."""
        delay_s = self._backoff.delay_s(self._chance())
        self._backoff = self._backoff.failed()
        self._voice(f"offline: {sentence}; trying again")
        self.writer.tell("offline", error=sentence, next_try_at=self._wall() + delay_s)
        self._sleep(delay_s)

    def _voice(self, sentence: str) -> None:
        """Say it, unless it was the last thing that was said: an outage is one line, not one for each try."""
        if sentence != self._last_said:
            self._last_said = sentence
            self._say(sentence)

    def _voice_trouble(self, sentence: str) -> None:
        self.writer.trouble(sentence)
        self._voice(sentence)
