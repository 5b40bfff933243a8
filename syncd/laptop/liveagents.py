"""Agents at play, as a laptop sees them.

Of others: wishes that lie in the mirror go up, batches come down into its rings. A viewer on this machine writes
`live.json` and reads the rings as it would beside the job: it need not know of the line between.

This machine's own, which `trainer actors --stream` lets others watch: told, asked for, and sent while somebody looks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from anchorleg.files import make_shared_folder
from anchorleg.live.wanted import FILE, Asking, Living, Wish, folder_of, read, wishes_of
from anchorleg.output import Notices
from syncd.laptop.mirror import Mirror
from syncd.shared.inbox import Inbox, withdraw
from syncd.shared.layout import NAME, SLOT, folder_names
from syncd.streamed import StreamedSlots
from syncd.wire.liveline import RINGS_EVERY_S, Agent, LiveReceiver, LiveSender
from syncd.wire.protocol import (
    MOST_OFFERS,
    MOST_WISHES,
    Frame,
    LiveBatch,
    NeedScene,
    OfferLive,
    SceneSlice,
    SeenLive,
    ShownLive,
    WatchLive,
    WireWish,
)
from syncd.wire.session import Session

#: How often wishes, and what of our own may be watched, are looked at.
LOOK_EVERY_S = 1.0
TIDY_EVERY_S = 60.0


class LiveAgents:
    """What a client does with agents at play over the connection `transport`. `say` takes a sentence; `monotonic` in s.

    `pull`, `push`: whether anything is fetched, and sent, at all.
    """

    def __init__(
        self,
        transport: Session,
        mirror: Mirror,
        *,
        say: Callable[[str], None],
        pull: bool = True,
        push: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport, self._mirror, self._say, self._pull, self._push = transport, mirror, say, pull, push
        self._monotonic = monotonic
        self._notices = Notices()
        self._look_at = self._tidy_at = float("-inf")
        self._watching = LiveReceiver(
            transport.say, monotonic, folder=self._folder, check=self._check, trouble=self._trouble
        )
        self._living: dict[str, Living] = {}
        self._wishes: tuple[WireWish, ...] = ()
        self._showing = LiveSender(self._opened, monotonic)
        self._slots = StreamedSlots(mirror.folder, monotonic)
        self._offers: tuple[tuple[str, int], ...] = ()
        self._wanted: dict[str, tuple[Wish, ...]] = {}
        self._asking: dict[str, Asking] = {}

    @property
    def wait_s(self) -> float:
        """How long nothing is to be done for them, as far as is known."""
        return RINGS_EVERY_S if self._showing.agents else float("inf")

    def turn(self, may_fetch: Callable[[], bool] = lambda: True, may_send: Callable[[], bool] = lambda: True) -> None:
        """Do what is due. `may_fetch`: a scene may be fetched, as no policy waits; `may_send`: no segment waits.

        Errors: UnreachableError; ProtocolError where the other side counts wrongly.
        """
        for frame in self._transport.take_live():
            self._hear(frame)
        if (now := self._monotonic()) >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            if self._pull:
                self._look_for_watchers(now)
            if self._push:
                self._look_for_actors(now)
        if may_fetch():
            self._watching.turn()
        self._tell_actors()
        while may_send() and (said := self._showing.next()) is not None:
            self._transport.say(*said)

    def _hear(self, frame: Frame) -> None:
        match frame.message:
            case LiveBatch() as batch:
                self._watching.take((batch.run_id, batch.slot, batch.lane), batch, frame.payload)
            case SceneSlice() as said:
                self._watching.take_slice(said, frame.payload)
            case ShownLive() as shown if any(shown.run_id == wish.run_id for wish in self._wishes):
                if shown.sentence:
                    self._trouble(shown.sentence, f"nobody asked in {shown.run_id}")
                self._offer(shown)
            case SeenLive() | NeedScene() as said:
                self._showing.hear(said)
            case WatchLive(wishes=wishes, sentence=sentence):
                self._want(wish for wish in wishes if (wish.run_id, wish.slot) in self._offers)
                if sentence:
                    self._trouble(sentence, "the server's word")

    def _trouble(self, sentence: str, cause: str) -> None:
        """Say it, or another one of the same `cause`, once a connection: there may be ten of them a second."""
        self._notices.trouble(sentence, cause)
        self._notices.tell(self._say)

    # --- others' ---------------------------------------------------------------------------------------------------

    def _look_for_watchers(self, now: float) -> None:
        """Tell the other side what is wanted of all runs of the mirror together: the first few."""
        found: list[WireWish] = []
        living: dict[str, Living] = {}
        runs = self._mirror.shared.runs
        with contextlib.suppress(OSError):
            for run_id in filter(NAME.fullmatch, folder_names(runs)):
                if not (watchers := read(runs / run_id / FILE)):
                    continue
                living[run_id] = self._living.get(run_id) or Living()
                lanes = wishes_of(living[run_id].of(watchers, now).values())
                found += [
                    WireWish(run_id=run_id, slot=slot, lane=lane, fps=fps)
                    for (slot, lane), fps in sorted(lanes.items())
                    if SLOT.fullmatch(str(slot))
                ]
        self._living = living
        before, self._wishes = self._wishes, tuple(found[:MOST_WISHES])
        if self._wishes != before:
            self._watching.want((wish.run_id, wish.slot, wish.lane) for wish in self._wishes)
            self._transport.say(WatchLive(wishes=self._wishes))

    def _offer(self, shown: ShownLive) -> None:
        """Have the folders of those contributors' agents that may be watched now, and no others of the run."""
        run_id, shared = shown.run_id, self._mirror.shared
        wanted = {shared.path.joinpath(*folder_of(run_id, slot, f"any@{who}")) for slot, who in shown.agents}
        try:
            here = {folder for inbox in Inbox.all_of(shared) for folder in inbox.live_folders()}
            for folder in {each for each in here if each.parent.name == run_id} - wanted:
                withdraw(folder)
            for folder in wanted:
                make_shared_folder(folder)
        except OSError as error:
            self._trouble(f"contributors' agents cannot be offered: {error.filename}: {error.strerror}", "offers")

    def _folder(self, agent: Agent) -> Path:
        return self._mirror.shared.path.joinpath(*folder_of(*agent))

    def _check(self, agent: Agent, size: int) -> None:
        self._mirror.capacity.check_slot(self._mirror.shared.slot(agent[0], agent[1]))
        self._mirror.capacity.check(size)

    # --- this machine's own ------------------------------------------------------------------------------------------

    def _look_for_actors(self, now: float) -> None:
        """Tell the other side which agents of ours may be watched."""
        before, self._offers = self._offers, tuple(self._slots.now()[:MOST_OFFERS])
        if self._offers != before:
            self._transport.say(OfferLive(agents=self._offers))
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY_S
            try:
                self._slots.tidy()
            except OSError as error:
                words = f"files of ended actors cannot be removed: {error.filename}: {error.strerror}"
                self._trouble(words, "tidy")

    def _want(self, wishes: Iterable[WireWish]) -> None:
        by_run: dict[str, list[Wish]] = {run_id: [] for run_id in self._asking}
        for wish in wishes:
            by_run.setdefault(wish.run_id, []).append(Wish(wish.slot, wish.lane, wish.fps))
        self._wanted = {run_id: tuple(some) for run_id, some in by_run.items()}
        self._showing.want((run_id, wish.slot, wish.lane) for run_id, some in by_run.items() for wish in some)

    def _tell_actors(self) -> None:
        """Keep them told who is watched."""
        for run_id, wishes in list(self._wanted.items()):
            if run_id not in self._asking:
                self._asking[run_id] = Asking(self._slots.live_file(run_id), self._monotonic)
            try:
                self._asking[run_id].renew(wishes)
            except OSError as error:
                words = f"actors cannot be notified of watchers: {error.filename}: {error.strerror}"
                self._trouble(words, "actors")
            if not wishes:
                del self._asking[run_id], self._wanted[run_id]

    def _opened(self, agent: Agent, name: str) -> int:
        path = self._slots.folder(agent[0], agent[1]) / name
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
