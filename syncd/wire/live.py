"""Agents at play, on the server's side of one connection.

Downwards (`LiveFeed`): whose batches the client wants, and which one may leave now. Of each agent there is one newest
batch, what nobody took in time was never read, and what is under way is bounded by what the client has not taken.

Upwards (`LiveIntake`): which of the contributor's own agents somebody watches, and what is let into its inbox of them.
Nothing is asked for that nobody watches, and what was not asked for is passed over. What comes is a stranger's: each
batch is checked and written anew, with the contributor's own name and this side's clock; rings and scenes lie in
`inbox/<who>/live/<run id>/<slot>/` under names that this side makes. What is above a limit is passed over, not queued.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from anchorleg.files import make_shared_folder
from anchorleg.live.batches import MOST_SCENE_BYTES, POSE, BadBatchError, checked, packed
from anchorleg.live.ring import Cell, RingReader, RingWriter
from anchorleg.live.wanted import (
    FILE,
    LOOK_EVERY_S,
    RENEW_EVERY_S,
    Asked,
    Asking,
    Wish,
    contributor_of,
    folder_of,
    ring_name,
    scene_name,
)
from syncd.errors import NoRoomError, ProtocolError
from syncd.shared.disk import is_nearly_full
from syncd.shared.inbox import Inbox
from syncd.shared.layout import Shared
from syncd.shared.offers import keep_scene, may_show, offered, withdraw
from syncd.wire.liveline import SLICE_BYTES, Agent, Credit, grown, shrunk
from syncd.wire.pacing import Bandwidth
from syncd.wire.protocol import (
    MOST_WISHES,
    LiveBatch,
    Message,
    NeedScene,
    NobodyAsked,
    OfferLive,
    SceneSlice,
    SeenLive,
    ShownLive,
    WantedLive,
    WatchLive,
    WireWish,
    encode,
)
from syncd.wire.tree import READABLE, Folder, open_file

#: How often the rings are looked at: each costs an open and a read of a network folder.
RINGS_EVERY_S = 0.2
#: A change of wishes is a file, one of offers a folder, made durably: no more of them than one a second.
CHANGE_EVERY_S = 1.0
#: How often the contributors are looked at whose agents may be watched.
OFFERS_EVERY_S = 2.0
#: What somebody else's key may want at once: its wishes cost the jobs time.
GUESTS_WISHES, GUESTS_FPS = 2, 10
#: Upwards, of one connection, batches and scenes together: two agents of MuJoCo's are 10, a scene of Meta-World's
#: 600 KiB once. What may come at once, in seconds of that: two agents' batches come together.
MOST_KIB_S, BURST_S = 256, 0.5
#: Scenes of one slot that are kept for a contributor.
MOST_SCENES = 16
#: A slice that does not come is given up; a scene that did not come is asked for again after this.
STUCK_AFTER_S, AGAIN_AFTER_S = 120.0, 30.0
NOT_HERE = "agents of this machine cannot be watched: that shared folder has no inbox of ours for them"

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
            self._credit.hear(said.number)

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
            self._look_at = now + RINGS_EVERY_S
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
        return ShownLive(run_id=self._run_id, agents=tuple(sorted(self.offers)))

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


class LiveIntake:
    """What one connection's contributor shows. `clock` is monotonic, `wall` unix s; `say` sends a message.

    Errors of its methods: ProtocolError alone.
    """

    def __init__(
        self,
        shared: Shared,
        inbox: Inbox,
        say: Callable[[Message], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._shared, self._inbox, self._say = shared, inbox, say
        self._clock, self._wall = clock, wall
        self._asked: dict[tuple[str, int], Asked] = {}
        self._wanted: dict[Agent, WireWish] = {}
        self._writers: dict[Agent, RingWriter] = {}
        self._pace = Bandwidth(MOST_KIB_S, clock)
        self._scenes = _Scenes(self)
        self._number = 0
        self._offers: tuple[tuple[str, int], ...] = ()
        self._look_at = self._looked_at = float("-inf")

    def offer(self, said: OfferLive) -> None:
        """These agents of the contributor's may be watched from now on."""
        self._offers = said.agents
        self._look_at = min(self._look_at, self._looked_at + CHANGE_EVERY_S)

    def turn(self) -> None:
        """Look who watches, and go on with a scene, where it is time to."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at, self._looked_at = now + LOOK_EVERY_S, now
            self._look()
        if self._wanted and self._has_room():
            self._scenes.turn(now)

    def put(self, said: LiveBatch, payload: bytes) -> None:
        """A batch came. Errors: ProtocolError where their numbers do not rise."""
        if said.number <= self._number:
            raise ProtocolError("wire.live-count")
        self._number = said.number
        self._say(SeenLive(number=said.number))
        agent = (said.run_id, said.slot, f"{said.lane}@{self._inbox.who}")
        if agent not in self._wanted or not self._has_room():
            return
        found = grown(payload)
        self._pace.took(max(len(payload), len(found)))  # what is written counts, not how small it was packed
        try:
            header, body = checked(said.kind, found)
            self._write(agent, said.kind, packed({**header, "origin": self._inbox.who, "at": self._wall()}, body))
        except (BadBatchError, NoRoomError, ValueError) as error:
            _LOG.info("a batch of %s is left out: %s", self._inbox.who, error)
        except OSError as error:
            _LOG.warning("an agent of %s cannot be shown: %s", self._inbox.who, error)
        else:
            if said.kind == POSE:
                self._scenes.want(agent, header["scene"])

    def put_slice(self, said: SceneSlice, payload: bytes) -> None:
        """A slice of a scene came; one that was not asked for is passed over."""
        self._pace.took(len(payload))
        self._scenes.put(said, payload)

    def close(self) -> None:
        """The connection is over: nobody can be watched over it any more."""
        for key in self._asked:
            self._withdraw(*key)
        self._asked, self._wanted = {}, {}

    def _has_room(self) -> bool:
        return self._pace.wait_s() <= BURST_S

    def _asked_of(self, run_id: str, slot: int) -> Asked:
        return Asked(self._shared.runs / run_id / FILE, slot, self._clock, who=self._inbox.who)

    def _look(self) -> None:
        wishes: list[WireWish] = []
        for key in self._asked.keys() - set(self._offers):
            self._withdraw(*key)
        self._asked = {key: self._asked.get(key) or self._asked_of(*key) for key in self._offers}
        try:
            is_allowed = may_show(self._inbox, self._wall())
            for (run_id, slot), asked in self._asked.items():
                if is_allowed and self._is_there(run_id, slot):
                    make_shared_folder(self.folder(run_id, slot))
                    lanes = sorted(asked.lanes().items())
                    wishes += [WireWish(run_id=run_id, slot=slot, lane=lane, fps=fps) for lane, fps in lanes]
                else:
                    self._withdraw(run_id, slot)
        except OSError as error:
            _LOG.warning("agents of %s cannot be offered: %s", self._inbox.who, error)
            wishes = []
        before, wanted = tuple(self._wanted.values()), tuple(wishes[:MOST_WISHES])
        self._wanted = {(wish.run_id, wish.slot, f"{wish.lane}@{self._inbox.who}"): wish for wish in wanted}
        self._writers = {agent: writer for agent, writer in self._writers.items() if agent in self._wanted}
        if wanted != before:
            self._say(WantedLive(wishes=wanted))

    def _is_there(self, run_id: str, slot: int) -> bool:
        """Whether the run has this slot, and no link leads elsewhere."""
        place = self.folder(run_id, slot)
        if any(path.is_symlink() for path in (place, *list(place.parents)[:3])):  # up to the inbox itself
            return False
        try:
            with Folder.root(self._shared.path) as root, root.down((*READABLE, run_id, str(slot))):
                return True
        except OSError:
            return False

    def folder(self, run_id: str, slot: int) -> Path:
        """Where what the contributor shows of a slot lies."""
        return self._shared.path.joinpath(*folder_of(run_id, slot, f"any@{self._inbox.who}"))

    def _write(self, agent: Agent, kind: int, payload: bytes) -> None:
        path = self.folder(agent[0], agent[1]) / ring_name(agent[2])
        if agent not in self._writers:
            self.check(0)
            self._writers[agent] = RingWriter(path)
        make_shared_folder(path.parent)  # another connection of the contributor's may have ended
        self._writers[agent].write(kind, payload)

    def check(self, size: int) -> None:
        """Whether so many bytes more may lie in the inbox. Errors: NoRoomError, OSError."""
        if is_nearly_full(self._inbox.path.parent, size):
            raise NoRoomError("live.disk-full")
        if self._inbox.claimed().bytes + size > self._inbox.limits.waiting_bytes:
            raise NoRoomError("live.quota", name=self._inbox.who)

    def ask(self, agent: Agent, sha256: str, offset: int) -> None:
        """Ask the contributor for a slice of a scene."""
        self._say(NeedScene(run_id=agent[0], slot=agent[1], sha256=sha256, offset=offset))

    def _withdraw(self, run_id: str, slot: int) -> None:
        if self._inbox.path.is_symlink():
            return
        with contextlib.suppress(OSError):  # pruned later
            withdraw(self.folder(run_id, slot))


class _Scenes:
    """Scenes that watched agents stand in, asked for one at a time, slice by slice. Errors of its methods: none."""

    def __init__(self, intake: LiveIntake) -> None:
        self._intake = intake
        #: (agent, sum) → not before (monotonic s). The newest names alone: the other side may lie.
        self._wanted: dict[tuple[Agent, str], float] = {}
        self._now: tuple[Agent, str] | None = None
        self._data = b""
        self._asked_at: float | None = None
        self._time = 0.0

    def want(self, agent: Agent, sha256: str) -> None:
        """A batch of the agent names it."""
        wanted = (agent, sha256)
        if wanted not in self._wanted and not (self._intake.folder(*agent[:2]) / scene_name(sha256)).exists():
            self._wanted[wanted] = self._time
            while len(self._wanted) > MOST_SCENES:
                del self._wanted[next(iter(self._wanted))]

    def turn(self, now: float) -> None:
        """Ask for the next slice, where none is awaited."""
        self._time = now
        if self._asked_at is not None and now - self._asked_at > STUCK_AFTER_S:
            self._end(is_here=False)
        if self._now is None:
            self._now = next((each for each, at in self._wanted.items() if now >= at), None)
        if self._now is None or self._asked_at is not None:
            return
        try:
            self._intake.check(MOST_SCENE_BYTES)
        except (NoRoomError, OSError):
            self._end(is_here=False)
        else:
            self._asked_at = now
            self._intake.ask(*self._now, len(self._data))

    def put(self, said: SceneSlice, payload: bytes) -> None:
        """What was sent."""
        if self._now is None or self._asked_at is None or (said.sha256, said.offset) != (self._now[1], len(self._data)):
            return
        self._asked_at = None
        self._data += payload
        if len(payload) > SLICE_BYTES or len(self._data) > MOST_SCENE_BYTES:
            self._end(is_here=False)
        elif len(payload) < SLICE_BYTES:
            agent, sha256 = self._now
            try:
                is_here = keep_scene(self._intake.folder(*agent[:2]), sha256, self._data, MOST_SCENES)
            except OSError as error:
                _LOG.warning("a scene cannot be written: %s", error)
                is_here = False
            self._end(is_here=is_here)

    def _end(self, *, is_here: bool) -> None:
        if self._now is not None:
            self._wanted.pop(self._now, None)
            if not is_here:
                self._wanted[self._now] = self._time + AGAIN_AFTER_S
        self._now, self._data, self._asked_at = None, b"", None
