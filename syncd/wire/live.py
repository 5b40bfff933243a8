"""Agents at play, on the server's side: whose batches a client wants, and which one may leave now.

Nothing is kept waiting: of each agent there is one newest batch, and what nobody took in time was never read. How much
is under way is bounded by what the client has not yet taken, so that a policy is never far behind.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from anchorleg.live.ring import Cell, RingReader
from anchorleg.live.wanted import FILE, RENEW_EVERY_S, Asking, Wish, contributor_of, folder_of, ring_name
from syncd.shared.layout import Shared
from syncd.shared.offers import offered
from syncd.wire.livemessages import LiveBatch, NobodyAsked, SeenLive, ShownAgent, ShownLive, WatchLive, WireWish, shrunk
from syncd.wire.pacing import Credit
from syncd.wire.protocol import encode
from syncd.wire.tree import READABLE, Folder, open_file

#: How often the rings are looked at: each costs an open and a read of a network folder.
LOOK_EVERY_S = 0.2
#: A change of wishes is a file that is written durably: a client that changes its mind all the time is not followed.
CHANGE_EVERY_S = 1.0
#: How often the contributors are looked at whose agents may be watched.
OFFERS_EVERY_S = 2.0
#: What somebody else's key may want at once: its wishes cost the jobs time.
GUESTS_WISHES, GUESTS_FPS = 2, 10

Agent = tuple[str, int, str]
_LOG = logging.getLogger(__name__)


class LiveFeed:
    """One client's wishes and what leaves because of them. `clock` is monotonic, `wall` unix s. Errors: as they say.

    `is_guest`: the client is a contributor's key.
    """

    def __init__(
        self,
        shared: Path,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
        *,
        is_guest: bool = False,
    ) -> None:
        self._shared, self._clock, self._wall, self._is_guest = shared, clock, wall, is_guest
        self._runs: dict[str, _Run] = {}
        self._readers: dict[Agent, RingReader] = {}
        self._newest: dict[Agent, Cell] = {}
        self._wished: tuple[WireWish, ...] | None = None
        self._change_at = self._look_at = 0.0
        self._credit = Credit(clock)

    @property
    def is_watched(self) -> bool:
        """Whether there is anything to do for it."""
        return bool(self._readers) or self._wished is not None

    def hear(self, said: WatchLive | SeenLive) -> None:
        """What the client wants from now on (`renew` takes it up), or has taken.

        Errors: ProtocolError where that was never sent.
        """
        if isinstance(said, WatchLive):
            self._wished = said.wishes
            if self._is_guest:
                some = said.wishes[:GUESTS_WISHES]
                self._wished = tuple(each.model_copy(update={"fps": min(each.fps, GUESTS_FPS)}) for each in some)
        else:
            self._credit.hear(said)

    def renew(self) -> list[NobodyAsked | ShownLive]:
        """Take up changed wishes and keep them alive, where it is time to. Returns what the client should know."""
        now = self._clock()
        if self._wished is not None and now >= self._change_at:
            self._change_at = now + CHANGE_EVERY_S
            self._change(self._wished)
            self._wished = None
        told = [(run_id, run.renew(now)) for run_id, run in self._runs.items()]
        nobody = [NobodyAsked(run_id=run_id, sentence=sentence) for run_id, sentence in told if sentence]
        shown = [run.shown(now, self._wall()) for run in self._runs.values()]
        return [*nobody, *(one for one in shown if one is not None)]

    def _change(self, wishes: Iterable[WireWish]) -> None:
        by_run: dict[str, list[Wish]] = {}
        for wish in wishes:
            by_run.setdefault(wish.run_id, []).append(Wish(wish.slot, wish.lane, wish.fps))
        for run_id in set(self._runs) - set(by_run):
            self._runs.pop(run_id).withdraw()
        for run_id, some in by_run.items():
            if run_id not in self._runs:
                self._runs[run_id] = _Run(self._shared, run_id, self._clock, is_guest=self._is_guest)
            self._runs[run_id].wishes = tuple(some)
        agents = [(run_id, wish.slot, wish.lane) for run_id, some in by_run.items() for wish in some]
        self._readers = {agent: self._readers.get(agent) or self._reader(agent) for agent in agents}
        self._newest = {agent: cell for agent, cell in self._newest.items() if agent in self._readers}

    def _reader(self, agent: Agent) -> RingReader:
        run_id, slot, lane = agent
        path = "/".join((*folder_of(run_id, slot, lane), ring_name(lane)))
        return RingReader(self._shared / path, partial(open_file, self._shared, path))

    def next_at(self) -> float:
        """When `frame` is worth its while (monotonic s), if nothing else waits; inf: not before the client spoke."""
        if not self._readers or not self._credit.allows(0):
            return math.inf
        waits = any(self._credit.allows(len(cell.payload)) for cell in self._newest.values())
        return 0.0 if waits else self._look_at

    def frame(self) -> bytes | None:
        """The next batch, for a connection on which nothing else waits."""
        now = self._clock()
        if now < self.next_at():
            return None
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            for agent, reader in self._readers.items():
                if self._may_be_shown(agent) and (cells := reader.newer()):
                    self._newest[agent] = cells[-1]  # an agent that waits keeps its turn
        for agent, cell in self._newest.items():
            if self._credit.allows(len(cell.payload)):
                del self._newest[agent]
                return self._encoded(agent, cell)
        return None

    def _may_be_shown(self, agent: Agent) -> bool:
        run_id, slot, lane = agent
        who = contributor_of(lane)
        return not who or (slot, who) in (self._runs[run_id].offers or ())

    def _encoded(self, agent: Agent, cell: Cell) -> bytes:
        run_id, slot, lane = agent
        payload = shrunk(cell)
        number = self._credit.sent(len(payload))
        return encode(LiveBatch(run_id=run_id, slot=slot, lane=lane, number=number, kind=cell.kind), payload)

    def close(self) -> None:
        """Nobody watches any more."""
        for run in self._runs.values():
            run.withdraw()
        self._runs, self._readers, self._newest, self._wished = {}, {}, {}, None


class _Run:
    """The wishes of one run, as its jobs are told them. Errors of its methods: none."""

    def __init__(self, shared: Path, run_id: str, clock: Callable[[], float], *, is_guest: bool) -> None:
        self.wishes: tuple[Wish, ...] = ()
        self._shared, self._run_id = shared, run_id
        self._asking = Asking(shared.joinpath(*READABLE, run_id, FILE), clock, is_guest=is_guest)
        self._again_at = self._offers_at = 0.0
        self._said = ""
        #: None: not looked yet, so that the first look is told, also of nobody.
        self.offers: frozenset[tuple[int, str]] | None = None

    def shown(self, now: float, wall: float) -> ShownLive | None:
        """Look whose agents may be watched, where it is time to; the message, where these are others than before."""
        if now < self._offers_at:
            return None
        self._offers_at = now + OFFERS_EVERY_S
        try:
            found = offered(Shared(self._shared), self._run_id, wall)
        except OSError:  # inboxes that this account may not read
            found = {}
        before, self.offers = self.offers, frozenset((slot, who) for slot, some in found.items() for who in some)
        if self.offers == before:
            return None
        agents = tuple(ShownAgent(slot=slot, who=who) for slot, who in sorted(self.offers))
        return ShownLive(run_id=self._run_id, agents=agents)

    def renew(self, now: float) -> str:
        """Keep them alive; a sentence where that cannot be done, once."""
        if now < self._again_at:
            return ""
        try:
            self._renew(self.wishes)
        except OSError as error:
            self._again_at = now + RENEW_EVERY_S
            why = "there is no such run" if isinstance(error, FileNotFoundError) else error.strerror
            before, self._said = self._said, f"nobody over there can be asked for agents of {self._run_id} ({why})"
            return self._said if self._said != before else ""
        self._said = ""
        return ""

    def withdraw(self) -> None:
        try:
            self._renew(())
        except OSError as error:
            _LOG.info("a wish cannot be withdrawn, it ends by itself: %s", error)

    def _renew(self, wishes: tuple[Wish, ...]) -> None:
        with Folder.root(self._shared) as root, root.down((*READABLE, self._run_id)):  # no link, and it is there
            self._asking.renew(wishes)
