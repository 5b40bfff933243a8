"""Agents at play, as a laptop sees them: wishes that lie in the mirror go up, batches come down into its rings.

A viewer on this machine writes `live.json` and reads the rings as it would beside the job: it need not know of the line
between. Nothing is asked for that nobody here wants to see, and nothing that was not asked for is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from anchorleg.files import make_shared_folder
from anchorleg.live.batches import POSE, BadBatchError, checked
from anchorleg.live.ring import CELL_BYTES, CELLS, RingWriter
from anchorleg.live.wanted import FILE, Living, folder_of, read, ring_name, wishes_of
from anchorleg.output import Notices
from syncd.errors import NoRoomError, StorageError
from syncd.laptop.mirror import Mirror
from syncd.shared.inbox import Inbox
from syncd.shared.layout import NAME, SLOT, SlotPlace, folder_names
from syncd.shared.offers import withdraw
from syncd.wire.livemessages import MOST_WISHES, ShownLive, WireWish
from syncd.wire.scenes import Agent, Scenes
from syncd.wire.session import Session
from syncd.wire.viewing import ShownBatch

#: How often the mirror's wishes are looked at, at most: the client wakes anyway when something arrives.
LOOK_EVERY_S = 1.0


class LiveAgents:
    """What a client does with agents at play, connection after connection. `say` takes a sentence; `monotonic` in s.

    `pull`: whether anything is fetched at all.
    """

    def __init__(
        self,
        mirror: Mirror,
        *,
        say: Callable[[str], None],
        pull: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mirror, self._say, self._pull, self._monotonic = mirror, say, pull, monotonic
        self._living: dict[str, Living] = {}
        self._writers: dict[Agent, RingWriter] = {}
        self._last: dict[Agent, bytes] = {}
        self._scenes = Scenes(mirror.shared, self._check, self._trouble, monotonic)
        self._notices = Notices()
        self._wishes: tuple[WireWish, ...] = ()
        self._told: tuple[WireWish, ...] = ()
        self._look_at = float("-inf")

    def begin(self) -> None:
        """Another connection: the other side knows of no wish of ours."""
        self._told = ()
        self._notices = Notices()
        self._scenes.begin()

    def turn(self, transport: Session, may_fetch: Callable[[], bool] = lambda: True) -> None:
        """Tell changed wishes, write what came. `may_fetch`: whether a scene may be asked for now; policies go first.

        Errors: UnreachableError.
        """
        now = self._monotonic()
        if self._pull and now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._wishes = self._wanted(now)
        viewing = transport.live
        if self._wishes != self._told:
            self._told = self._wishes
            viewing.watch(self._wishes)
            agents = {(wish.run_id, wish.slot, wish.lane) for wish in self._wishes}
            self._writers = {agent: writer for agent, writer in self._writers.items() if agent in agents}
        for shown in viewing.take_shown():
            self._offer(shown)
        batches, sentences = viewing.take()
        for sentence in sentences:
            self._trouble(sentence)
        for batch in batches:
            self._take(batch)
        self._scenes.turn(viewing, may_fetch)

    def _wanted(self, now: float) -> tuple[WireWish, ...]:
        """Of all runs of the mirror together, the first few."""
        found: list[WireWish] = []
        living: dict[str, Living] = {}
        runs = self._mirror.shared.runs
        for run_id in filter(NAME.fullmatch, _names(runs)):
            watchers = read(runs / run_id / FILE)
            if not watchers:
                continue
            living[run_id] = self._living.get(run_id) or Living()
            lanes = wishes_of(living[run_id].of(watchers, now).values())
            found += [
                WireWish(run_id=run_id, slot=slot, lane=lane, fps=fps)
                for (slot, lane), fps in sorted(lanes.items())
                if SLOT.fullmatch(str(slot))
            ]
        self._living = living
        return tuple(found[:MOST_WISHES])

    def _take(self, batch: ShownBatch) -> None:
        agent = (batch.run_id, batch.slot, batch.lane)
        where = f"{batch.run_id}/{batch.slot} {batch.lane}"
        if batch.payload == self._last.get(agent):
            return  # the newest one again, after a new connection
        try:
            header, _ = checked(batch.kind, batch.payload)
            self._writer(agent).write(batch.kind, batch.payload)
        except BadBatchError as error:
            self._trouble(f"a batch of the agent {where} is left out: {error}", cause=f"a batch of {where}")
            return
        except (NoRoomError, StorageError) as error:
            self._trouble(str(error))
            return
        except OSError as error:
            self._trouble(f"the agent {where} cannot be shown: {error.filename}: {error.strerror}")
            return
        self._last = {**self._last, agent: batch.payload} if len(self._last) < MOST_WISHES else {agent: batch.payload}
        if batch.kind == POSE:
            self._scenes.want(agent, header["scene"])

    def _offer(self, shown: ShownLive) -> None:
        """Have the folders of those contributors' agents that may be watched now, and no others of the run."""
        run_id, shared = shown.run_id, self._mirror.shared
        wanted = {shared.path.joinpath(*folder_of(run_id, each.slot, f"any@{each.who}")) for each in shown.agents}
        try:
            here = {folder for inbox in Inbox.all_of(shared) for folder in inbox.live_folders()}
            for folder in {each for each in here if each.parent.name == run_id} - wanted:
                withdraw(folder)
            for folder in wanted:
                make_shared_folder(folder)
        except OSError as error:
            self._trouble(f"contributors' agents cannot be offered: {error.filename}: {error.strerror}")

    def _place(self, agent: Agent) -> SlotPlace:
        return self._mirror.shared.slot(agent[0], agent[1])

    def _check(self, agent: Agent, size: int) -> None:
        self._mirror.capacity.check_slot(self._place(agent))
        self._mirror.capacity.check(size)

    def _writer(self, agent: Agent) -> RingWriter:
        if agent not in self._writers:
            path = self._mirror.shared.path.joinpath(*folder_of(*agent), ring_name(agent[2]))
            if not os.path.lexists(path):
                self._check(agent, CELLS * CELL_BYTES)
            self._writers[agent] = RingWriter(path)
        return self._writers[agent]

    def _trouble(self, sentence: str, cause: str = "") -> None:
        """Say it, or another one of the same `cause`, once a connection: there may be ten of them a second."""
        self._notices.trouble(sentence, cause)
        self._notices.tell(self._say)


def _names(folder: Path) -> list[str]:
    try:
        return folder_names(folder)
    except OSError:
        return []
