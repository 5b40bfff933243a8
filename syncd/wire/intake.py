"""A contributor's agents at play, on the server's side: whom somebody watches, and what is let into its inbox of them.

Nothing is asked for that nobody watches, and what was not asked for is passed over. What comes is a stranger's: each
batch is checked and written anew, with the contributor's own name and this side's clock; rings and scenes lie in
`inbox/<who>/live/<run id>/<slot>/` under names that this side makes. What is above a limit is passed over, not queued.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from anchorleg.files import make_shared_folder
from anchorleg.live.batches import POSE, BadBatchError, checked, packed
from anchorleg.live.ring import RingWriter
from anchorleg.live.wanted import FILE, LOOK_EVERY_S, Asked, folder_of, ring_name
from syncd.errors import NoRoomError, ProtocolError
from syncd.shared.disk import is_nearly_full
from syncd.shared.inbox import Inbox
from syncd.shared.layout import Shared
from syncd.shared.offers import may_show, withdraw
from syncd.wire.fields import Message
from syncd.wire.livemessages import (
    MOST_WISHES,
    LiveBatch,
    NeedScene,
    OfferLive,
    OwnWish,
    SceneSlice,
    SeenLive,
    WantedLive,
    grown,
)
from syncd.wire.pacing import Bandwidth
from syncd.wire.scenes import SLICE_BYTES, Agent, Scenes, Slice
from syncd.wire.tree import READABLE, Folder

#: Of one connection, batches and scenes together: two agents of MuJoCo's are 10, a scene of Meta-World's 600 KiB once.
MOST_KIB_S = 256
#: What may come at once, in seconds of that: two agents' batches come together.
BURST_S = 0.5
#: Between two batches of one agent; an honest one makes five a second, and a line bunches them.
APART_S = 0.05
#: What may be watched is a folder that is made durably: a client that changes its mind all the time is not followed.
CHANGE_EVERY_S = 1.0
#: Scenes of one slot that are kept for a contributor.
MOST_SCENES = 16
#: A batch's moment is moved onto this side's clock; farther than this from it, it is moved anew.
CLOCKS_APART_S = 1.0
NOT_HERE = "agents of this machine cannot be watched: that shared folder has no inbox of ours for them"

_LOG = logging.getLogger(__name__)


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
        self._wanted: dict[Agent, OwnWish] = {}
        self._writers: dict[Agent, RingWriter] = {}
        self._taken_at: dict[Agent, float] = {}
        self._shift: dict[Agent, float] = {}
        self._pace = Bandwidth(MOST_KIB_S, clock)
        self._scenes = Scenes(shared, self._check, _LOG.info, clock, most=MOST_SCENES)
        self._slices = _Slices(say)
        self._number = 0
        self._offers: tuple[tuple[str, int], ...] = ()
        self._look_at = self._looked_at = float("-inf")

    def offer(self, said: OfferLive) -> None:
        """These agents of the contributor's may be watched from now on."""
        self._offers = tuple((each.run_id, each.slot) for each in said.agents)
        self._look_at = min(self._look_at, self._looked_at + CHANGE_EVERY_S)

    def turn(self) -> None:
        """Look who watches, and go on with a scene, where it is time to."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at, self._looked_at = now + LOOK_EVERY_S, now
            self._look()
        if self._wanted:
            self._scenes.turn(self._slices, self._has_room)

    def put(self, said: LiveBatch, payload: bytes) -> None:
        """A batch came. Errors: ProtocolError where their numbers do not rise."""
        if said.number <= self._number:
            raise ProtocolError("wire.live-count")
        self._number = said.number
        self._say(SeenLive(number=said.number))
        agent, now = (said.run_id, said.slot, f"{said.lane}@{self._inbox.who}"), self._clock()
        is_early = now < self._taken_at.get(agent, float("-inf")) + APART_S
        if agent not in self._wanted or is_early or not self._has_room():
            return
        self._taken_at[agent] = now
        found = grown(payload)
        self._pace.took(max(len(payload), len(found)))  # what is written counts, not how small it was packed
        try:
            header, body = checked(said.kind, found)
            ours = {"origin": self._inbox.who, "at": self._moment(agent, header["at"])}
            self._write(agent, said.kind, packed({**header, **ours}, body))
        except (BadBatchError, NoRoomError, ValueError) as error:
            _LOG.info("a batch of %s is left out: %s", self._inbox.who, error)
            return
        except OSError as error:
            _LOG.warning("an agent of %s cannot be shown: %s", self._inbox.who, error)
            return
        if said.kind == POSE:
            self._scenes.want(agent, header["scene"])

    def put_slice(self, said: SceneSlice, payload: bytes) -> None:
        """A slice of a scene came; one that was not asked for is passed over."""
        self._pace.took(len(payload))
        self._slices.put(said, payload)

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
        wishes: list[OwnWish] = []
        for key in self._asked.keys() - set(self._offers):
            self._withdraw(*key)
        self._asked = {key: self._asked.get(key) or self._asked_of(*key) for key in self._offers}
        try:
            is_allowed = may_show(self._inbox, self._wall())
            for key, asked in self._asked.items():
                if is_allowed and self._is_there(*key):
                    make_shared_folder(self._folder(*key))
                    wishes += _wishes(*key, asked)
                else:
                    self._withdraw(*key)
        except OSError as error:
            _LOG.warning("agents of %s cannot be offered: %s", self._inbox.who, error)
            wishes = []
        before = tuple(self._wanted.values())
        wanted = tuple(wishes[:MOST_WISHES])
        self._wanted = {(wish.run_id, wish.slot, f"{wish.lane}@{self._inbox.who}"): wish for wish in wanted}
        self._writers = {agent: writer for agent, writer in self._writers.items() if agent in self._wanted}
        self._shift = {agent: shift for agent, shift in self._shift.items() if agent in self._wanted}
        self._taken_at = {agent: at for agent, at in self._taken_at.items() if agent in self._wanted}
        if wanted != before:
            self._say(WantedLive(wishes=wanted))

    def _is_there(self, run_id: str, slot: int) -> bool:
        """Whether the run has this slot, and no link leads elsewhere."""
        place = self._folder(run_id, slot)
        if any(path.is_symlink() for path in (place, *list(place.parents)[:3])):  # up to the inbox itself
            return False
        try:
            with Folder.root(self._shared.path) as root, root.down((*READABLE, run_id, str(slot))):
                return True
        except OSError:
            return False

    def _folder(self, run_id: str, slot: int) -> Path:
        return self._shared.path.joinpath(*folder_of(run_id, slot, f"any@{self._inbox.who}"))

    def _moment(self, agent: Agent, at: float) -> float:
        """When that was by this side's clock, in steps as the contributor's own clock made them."""
        now = self._wall()
        shifted = at + self._shift.get(agent, float("inf"))
        if not now - CLOCKS_APART_S <= shifted <= now:
            self._shift[agent] = now - at
            return now
        return shifted

    def _write(self, agent: Agent, kind: int, payload: bytes) -> None:
        path = self._folder(agent[0], agent[1]) / ring_name(agent[2])
        if agent not in self._writers:
            self._check(agent, 0)
            self._writers[agent] = RingWriter(path)
        make_shared_folder(path.parent)  # another connection of the contributor's may have ended
        self._writers[agent].write(kind, payload)

    def _check(self, _agent: Agent, size: int) -> None:
        if is_nearly_full(self._inbox.path.parent, size):
            raise NoRoomError("live.disk-full")
        if self._inbox.claimed().bytes + size > self._inbox.limits.waiting_bytes:
            raise NoRoomError("live.quota", name=self._inbox.who)

    def _withdraw(self, run_id: str, slot: int) -> None:
        if self._inbox.path.is_symlink():
            return
        with contextlib.suppress(OSError):  # pruned later
            withdraw(self._folder(run_id, slot))


def _wishes(run_id: str, slot: int, asked: Asked) -> Iterator[OwnWish]:
    for lane, fps in sorted(asked.lanes().items()):
        yield OwnWish(run_id=run_id, slot=slot, lane=lane, fps=fps)


class _Slices:
    """A `Slicing` over this connection."""

    def __init__(self, say: Callable[[Message], None]) -> None:
        self._say = say
        self._sha256 = ""
        self._slice: Slice | None = None

    def ask(self, agent: Agent, sha256: str, offset: int) -> None:
        """See `Slicing`."""
        self._sha256, self._slice = sha256, Slice(offset)
        self._say(NeedScene(run_id=agent[0], slot=agent[1], sha256=sha256, offset=offset))

    def put(self, said: SceneSlice, payload: bytes) -> None:
        """What was sent."""
        if self._slice is not None and said.sha256 == self._sha256 and len(payload) <= SLICE_BYTES:
            self._slice.append(said.offset, payload)
            self._slice.end()

    def sliced(self) -> Slice | None:
        """See `Slicing`."""
        if self._slice is None or not self._slice.done:
            return None
        found, self._slice = self._slice, None
        return found

    def forget(self) -> None:
        """See `Slicing`."""
        self._slice = None
