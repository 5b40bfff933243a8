"""Agents at play, on the server's side of one connection: those of the folder's jobs and contributors, whom the client
wants to see (`LiveFeed`), and the client's own, which somebody here wants to see (`LiveIntake`).

What a contributor shows is a stranger's: each batch is checked and written anew, with the contributor's own name and
this side's clock, below `inbox/<who>/live/<run id>/<slot>/`. Nothing is asked for that nobody watches.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from anchorleg.files import make_shared_folder
from anchorleg.live.wanted import FILE, LOOK_EVERY_S, RENEW_EVERY_S, Asked, Asking, Wish, contributor_of, folder_of
from syncd.errors import NoRoomError
from syncd.shared.inbox import Inbox, may_show, offered, withdraw
from syncd.shared.layout import Shared, is_nearly_full
from syncd.wire.feed import READABLE, Folder, open_file
from syncd.wire.liveline import Agent, LiveReceiver, LiveSender
from syncd.wire.protocol import (
    MOST_WISHES,
    LiveBatch,
    Message,
    NeedScene,
    OfferLive,
    SceneSlice,
    SeenLive,
    ShownLive,
    WatchLive,
    WireWish,
    encode,
)

#: A change of wishes is a file, one of offers a folder, made durably: no more of them than one a second.
CHANGE_EVERY_S = 1.0
#: How often the contributors are looked at whose agents may be watched.
OFFERS_EVERY_S = 2.0
#: What somebody else's key may want at once: its wishes cost the jobs time.
GUESTS_WISHES, GUESTS_FPS = 2, 10
#: Upwards, of one connection, batches and scenes together: two agents of MuJoCo's are 10, a scene of Meta-World's
#: 600 KiB once.
MOST_KIB_S = 256
NOT_HERE = "agents of this machine cannot be watched: the shared folder has no inbox for this account"

_LOG = logging.getLogger(__name__)


class LiveFeed:
    """One client's wishes and what leaves because of them. `clock` is monotonic, `wall` unix s.

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
        self._wished: tuple[WireWish, ...] | None = None
        self._change_at = 0.0
        self._showing = LiveSender(self._opened, clock)
        self.next_at = self._showing.next_at

    def _opened(self, agent: Agent, name: str) -> int:
        return open_file(self._shared, "/".join((*folder_of(*agent), name)))

    @property
    def is_watched(self) -> bool:
        """Whether there is anything to do for it."""
        return bool(self._showing.agents) or self._wished is not None

    def hear(self, said: WatchLive | SeenLive | NeedScene) -> None:
        """What the client wants from now on (`renew` takes it up), or has taken. Errors: ProtocolError."""
        if not isinstance(said, WatchLive):
            self._showing.hear(said)
            return
        self._wished = said.wishes
        if self._is_guest:
            some = said.wishes[:GUESTS_WISHES]
            self._wished = tuple(each.model_copy(update={"fps": min(each.fps, GUESTS_FPS)}) for each in some)

    def renew(self) -> list[ShownLive]:
        """Take up changed wishes and keep them alive, where it is time to. Returns what the client should know."""
        now = self._clock()
        if self._wished is not None and now >= self._change_at:
            self._change_at = now + CHANGE_EVERY_S
            self._change(self._wished)
            self._wished = None
        told = (run.renew(now, self._wall()) for run in self._runs.values())
        return [one for one in told if one is not None]

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
        self._showing.want((run_id, wish.slot, wish.lane) for run_id, some in by_run.items() for wish in some)

    def frame(self) -> bytes | None:
        """The next frame, for a connection on which nothing else waits."""
        said = self._showing.next(self._may_be_shown)
        return encode(*said) if said is not None else None

    def _may_be_shown(self, agent: Agent) -> bool:
        run_id, slot, lane = agent
        who = contributor_of(lane)
        return not who or (slot, who) in self._runs[run_id].offers

    def close(self) -> None:
        """Nobody watches any more."""
        self._wished = None
        self._change(())


class _Run:
    """The wishes of one run, as its jobs are told them. Errors of its methods: none."""

    def __init__(self, shared: Path, run_id: str, clock: Callable[[], float], *, is_guest: bool) -> None:
        self.wishes: tuple[Wish, ...] = ()
        self.offers: frozenset[tuple[int, str]] = frozenset()
        self._shared, self._run_id = shared, run_id
        self._asking = Asking(shared.joinpath(*READABLE, run_id, FILE), clock, is_guest=is_guest)
        self._again_at = self._offers_at = 0.0
        self._sentence = ""
        #: None: nothing yet, so that the first look is told, also of nobody.
        self._told: ShownLive | None = None

    def renew(self, now: float, wall: float) -> ShownLive | None:
        """Keep them alive, and look whose agents may be watched; what is other than before."""
        if now >= self._again_at:
            try:
                self._ask(self.wishes)
                self._sentence = ""
            except OSError as error:
                self._again_at = now + RENEW_EVERY_S
                why = "there is no such run" if isinstance(error, FileNotFoundError) else error.strerror
                self._sentence = f"agents of {self._run_id} cannot be requested ({why})"
        if now >= self._offers_at:
            self._offers_at = now + OFFERS_EVERY_S
            try:
                found = offered(Shared(self._shared), self._run_id, wall)
            except OSError:  # inboxes that this account may not read
                found = {}
            self.offers = frozenset((slot, who) for slot, some in found.items() for who in some)
        shown = ShownLive(run_id=self._run_id, agents=tuple(sorted(self.offers)), sentence=self._sentence)
        before, self._told = self._told, shown
        return shown if shown != before else None

    def withdraw(self) -> None:
        try:
            self._ask(())
        except OSError as error:
            _LOG.info("a request cannot be withdrawn, but ends by itself: %s", error)

    def _ask(self, wishes: tuple[Wish, ...]) -> None:
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
        self._wishes: tuple[WireWish, ...] = ()
        self._watching = LiveReceiver(
            say, clock, folder=self._folder, check=self._check, kib_s=MOST_KIB_S,
            trouble=lambda sentence, _cause: _LOG.info("of %s: %s", inbox.who, sentence),
            stamp=lambda: {"origin": inbox.who, "at": wall()},
        )  # fmt: skip
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
        if self._wishes:
            self._watching.turn()

    def hear(self, said: LiveBatch | SceneSlice, payload: bytes) -> None:
        """What the contributor's side sent. Errors: ProtocolError where the numbers of batches do not rise."""
        if isinstance(said, LiveBatch):
            self._watching.take((said.run_id, said.slot, f"{said.lane}@{self._inbox.who}"), said, payload)
        else:
            self._watching.take_slice(said, payload)

    def close(self) -> None:
        """The connection is over: nobody can be watched over it any more."""
        for key in self._asked:
            self._withdraw(*key)

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
                    make_shared_folder(self._folder_of(run_id, slot))
                    lanes = sorted(asked.lanes().items())
                    wishes += [WireWish(run_id=run_id, slot=slot, lane=lane, fps=fps) for lane, fps in lanes]
                else:
                    self._withdraw(run_id, slot)
        except OSError as error:
            _LOG.warning("agents of %s cannot be offered: %s", self._inbox.who, error)
            wishes = []
        before, self._wishes = self._wishes, tuple(wishes[:MOST_WISHES])
        self._watching.want((wish.run_id, wish.slot, f"{wish.lane}@{self._inbox.who}") for wish in self._wishes)
        if self._wishes != before:
            self._say(WatchLive(wishes=self._wishes))

    def _is_there(self, run_id: str, slot: int) -> bool:
        """Whether the run has this slot, and no link leads elsewhere."""
        place = self._folder_of(run_id, slot)
        if any(path.is_symlink() for path in (place, *list(place.parents)[:3])):  # up to the inbox itself
            return False
        try:
            with Folder.root(self._shared.path) as root, root.down((*READABLE, run_id, str(slot))):
                return True
        except OSError:
            return False

    def _folder(self, agent: Agent) -> Path:
        return self._shared.path.joinpath(*folder_of(*agent))

    def _folder_of(self, run_id: str, slot: int) -> Path:
        return self._folder((run_id, slot, f"any@{self._inbox.who}"))

    def _check(self, _agent: Agent, size: int) -> None:
        if is_nearly_full(self._inbox.path.parent, size):
            raise NoRoomError("live.disk-full")
        if self._inbox.claimed().bytes + size > self._inbox.limits.waiting_bytes:
            raise NoRoomError("live.quota", name=self._inbox.who)

    def _withdraw(self, run_id: str, slot: int) -> None:
        if self._inbox.path.is_symlink():
            return
        with contextlib.suppress(OSError):  # pruned later
            withdraw(self._folder_of(run_id, slot))
