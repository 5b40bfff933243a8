"""What is done over one connection: fetch what is wanted, newest first; send what waits; count what was said.

The order of things and the clock are the caller's (`syncd.laptop.client`). Nothing here ends a connection.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anchorleg.output import Notices
from syncd.errors import ChangedError, DamagedPolicyError, GoneError, NoRoomError, StorageError
from syncd.laptop.backoff import DISK_RETRY_S, later
from syncd.laptop.mirror import Arrival, Mirror
from syncd.outbox import Outbox, OutboxFile, count_reason
from syncd.wire.arrivals import MAX_FILES, News, Offer, Receipt
from syncd.wire.protocol import SegmentVerdict
from syncd.wire.session import Session

#: Some 0.7 MB: what is sent in one go before news are looked at again.
SEND_AT_ONCE = 32
#: The other side takes nothing of ours now, and does not say when it will: an owner's decision, or no inbox.
HELD_FOR_S = 600.0
#: Refusals that are about us, not about the segment, and do not say when to ask again: it stays in the outbox.
ABOUT_US = frozenset({"dropped", "no inbox"})
#: Refusals that are about one slot or its run, where they say when to ask again: others' segments are sent meanwhile.
ABOUT_A_SLOT = frozenset({"full", "day_quota", "version", "unreadable", "no inbox"})
#: The run may be that of another shared folder, to which the mirror is connected at other times.
UNKNOWN_HELD_S = 3_600.0
#: What helps where the owner takes nothing of this version: our words, for theirs are no advice to follow.
UPDATE_FIRST = " until you update Anchorleg on this machine and restart syncd (in the background: `syncd install`)"
#: After a file was gone from under us, everything is listed again, once things have calmed down.
RELIST_AFTER_S = 5.0


@dataclass
class ExchangeCounts:
    """What one exchange has moved so far. Numbers are files; `bytes` came for policies and curves.

    `averaged`: policies that are a moving average. `offered`: slots in the last listing.
    """

    policies: list[Arrival] = field(default_factory=list)
    averaged: int = 0
    offered: int = 0
    curves: int = 0
    bytes: int = 0
    sent: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    troubles: list[str] = field(default_factory=list)

    @property
    def moved(self) -> int:
        """How many files came or went: progress."""
        return len(self.policies) + self.averaged + self.curves + self.sent

    def trouble(self, sentence: str) -> None:
        """Note it, once; the last twenty stay."""
        if sentence not in self.troubles:
            self.troubles.append(sentence)
            del self.troubles[:-20]

    def add(self, arrival: Arrival) -> bool:
        """Count what came; whether it is a policy that people are told of."""
        self.bytes += arrival.bytes
        if arrival.manifest is None:
            self.curves += 1
        elif arrival.target.place.is_averaged:
            self.averaged += 1
        else:
            self.policies.append(arrival)
            del self.policies[:-1000]
            return True
        return False


class Exchange:
    """The work over `transport`. `arrived` is told of each policy but averaged ones, and whether it was announced
    just now.

    `patient`: a full disk here is waited for, and said (else StorageError comes out), and so are news of a curve that
    changed while it was fetched. `say` takes one sentence.
    """

    def __init__(
        self,
        transport: Session,
        mirror: Mirror,
        outbox: Outbox,
        *,
        pull: bool = True,
        push: bool = True,
        patient: bool = False,
        say: Callable[[str], None] = lambda _: None,
        arrived: Callable[[Arrival, bool], None] = lambda _arrival, _announced: None,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.transport = transport
        self.counts = ExchangeCounts()
        self._mirror, self._outbox = mirror, outbox
        self._pull, self._push, self._patient = pull, push, patient
        self._say, self._arrived, self._monotonic, self._chance = say, arrived, monotonic, chance
        self._wanted: dict[str, tuple[Offer, bool]] = {}
        self._fetch_from = self._send_from = 0.0
        self._held: dict[tuple[str, int], float] = {}  # slot → when it may be asked again
        self._relist_at: float | None = None
        self._passed_over = Notices()
        self.more_waits = push

    def take(self, news: News, *, announced: bool) -> None:
        """Note what to fetch, and count verdicts. `announced`: these are changes, not a listing of what there is.

        Of a policy that is still to be fetched only the newest version is: an older one was overtaken.
        """
        if not announced:
            self._relist_at = None
            self.counts.offered = news.policies
        if self._pull:
            for offer in self._mirror.wanted(news.offers, changed=announced, say=self._pass_over):
                target = self._mirror.target(offer)
                if target is not None:
                    key = f"{target.place.path}" if target.version is not None else offer.path
                    if key in self._wanted or len(self._wanted) < MAX_FILES:
                        self._wanted[key] = (offer, announced)
                    else:
                        self._pass_over(f"more than {MAX_FILES:,} files are offered at once: the others are left out")
            if news.left_out:
                self._pass_over(news.left_out)
        if news.verdicts:
            self._count(news.verdicts)

    def _count(self, verdicts: Sequence[SegmentVerdict]) -> None:
        """Until they are counted the other side keeps them: what this disk has no room for is listed again later."""
        try:
            self._outbox.judged(verdicts)
        except StorageError as error:
            self._trouble(str(error))
            if self._patient and self._relist_at is None:
                self._relist_at = self._monotonic() + DISK_RETRY_S
            return
        self.transport.counted(verdicts)
        self.counts.accepted += sum(verdict.accepted for verdict in verdicts)
        for verdict in verdicts:
            if not verdict.accepted:
                count_reason(self.counts.refused, verdict.reason)

    @property
    def wants(self) -> bool:
        """Whether something can be fetched now."""
        return bool(self._wanted) and self._monotonic() >= self._fetch_from

    @property
    def something_was_gone(self) -> bool:
        """Whether a listing is due, because a file was gone when it was asked for, or verdicts could not be counted."""
        return self._relist_at is not None

    def must_list(self) -> bool:
        """Whether it is time to list anew; says so once."""
        if self._relist_at is None or self._monotonic() < self._relist_at:
            return False
        self._relist_at = None
        return True

    def fetch_one(self) -> None:
        """Fetch one of what is wanted, policies first. Errors: UnreachableError; StorageError unless patient."""
        policies = (key for key, (offer, _) in self._wanted.items() if offer.kind == "manifest")
        key = next(policies, None) or next(iter(self._wanted))
        offer, announced = self._wanted.pop(key)
        try:
            arrival = self._mirror.bring(offer, self.transport.fetch)
        except GoneError as error:
            if not (self._patient and isinstance(error, ChangedError) and offer.kind == "metrics"):
                self._relist_at = self._relist_at or self._monotonic() + RELIST_AFTER_S
        except NoRoomError as error:
            self._pass_over(str(error))
        except DamagedPolicyError as error:
            self._trouble(str(error))
        except StorageError as error:
            self._wanted.setdefault(key, (offer, announced))
            if not self._patient:
                raise
            self._fetch_from = self._monotonic() + DISK_RETRY_S
            self._trouble(f"{error}; trying again every {DISK_RETRY_S:.0f} s")
        except BaseException:
            self._wanted.setdefault(key, (offer, announced))
            raise
        else:
            if self.counts.add(arrival):
                self._arrived(arrival, announced)

    def send_some(self) -> None:
        """Send the oldest of what waits; `more_waits` says whether to call again at once.

        Errors: UnreachableError (what was not confirmed stays in the outbox); StorageError unless patient.
        """
        self.more_waits = False
        if not self._push or self._monotonic() < self._send_from:
            return
        try:
            self._held = {slot: until for slot, until in self._held.items() if self._monotonic() < until}
            batch = self._outbox.waiting(SEND_AT_ONCE, without=self._held)
            if not batch:
                return
            receipts = self.transport.send([(each.path, each.run_id, each.slot) for each in batch])
            stored = [each.path for each, receipt in zip(batch, receipts, strict=True) if receipt.stored]
            self._outbox.sent(stored)
            self.counts.sent += len(stored)
            self.more_waits = len(batch) == SEND_AT_ONCE
            for each, receipt in zip(batch, receipts, strict=True):
                if not receipt.stored:
                    self._refused(each, receipt)
        except StorageError as error:
            if not self._patient:
                raise
            self._send_from = self._monotonic() + DISK_RETRY_S
            self._trouble(str(error))

    def _refused(self, segment: OutboxFile, receipt: Receipt) -> None:
        slot = segment.run_id, segment.slot
        said = f'"{receipt.sentence}" ({receipt.reason})' if receipt.sentence else receipt.reason
        why = UPDATE_FIRST if receipt.reason == "version" else ""
        words = f"segments wait in the outbox{why}; the other side says {said}"
        if receipt.reason == "unreadable":
            words = f"a segment in the outbox cannot be read now ({receipt.sentence}): it is tried again"
        if receipt.retry_after_s is not None and receipt.reason in ABOUT_A_SLOT:
            for_s = later(receipt.retry_after_s, self._chance())
            self._held[slot] = max(self._held.get(slot, 0.0), self._monotonic() + for_s)
            self._trouble(words)
        elif receipt.retry_after_s is not None or receipt.reason in ABOUT_US:
            self.more_waits = False
            for_s = HELD_FOR_S if receipt.retry_after_s is None else later(receipt.retry_after_s, self._chance())
            self._send_from = max(self._send_from, self._monotonic() + for_s)
            self._trouble(words)
        elif receipt.reason == "other_run" and self._outbox.keeps_unknown(segment.path):
            self._held[slot] = self._monotonic() + UNKNOWN_HELD_S
            self._trouble(
                f"the other side does not know slot {segment.slot} of {segment.run_id}; its segments wait in the "
                "outbox, at most a day, for that run's shared folder"
            )
        elif segment.path.exists():
            self._outbox.refused(segment.path, receipt.reason)
            count_reason(self.counts.refused, receipt.reason)
            if receipt.reason == "not_needed":
                self._pass_over(f'the other side refuses the waiting segments: "{receipt.sentence}"')

    def _pass_over(self, sentence: str) -> None:
        """Say once a connection what the mirror does not take: there may be a thousand more."""
        self._passed_over.trouble(sentence)
        self._passed_over.tell(self._trouble)

    def _trouble(self, sentence: str) -> None:
        self.counts.trouble(sentence)
        self._say(sentence)
