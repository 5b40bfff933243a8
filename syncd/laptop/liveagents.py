"""Agents at play, as a laptop sees them.

Those of others (`_Others`): wishes that lie in the mirror go up, batches come down into its rings. A viewer on this
machine writes `live.json` and reads the rings as it would beside the job: it need not know of the line between. Nothing
is asked for that nobody here wants to see, and nothing that was not asked for is written.

This machine's own (`_Own`), which `trainer actors --stream` lets others watch: told, asked for, and sent while somebody
looks, the newest of each agent alone, and never more than the other side has taken.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from anchorleg.files import make_shared_folder
from anchorleg.live.batches import MOST_SCENE_BYTES, POSE, BadBatchError, checked
from anchorleg.live.ring import CELL_BYTES, CELLS, Cell, RingReader, RingWriter
from anchorleg.live.wanted import FILE, Asking, Living, Wish, folder_of, read, ring_name, scene_name, wishes_of
from anchorleg.output import Notices
from syncd.errors import ChangedError, GoneError, NoRoomError, ProtocolError, StorageError
from syncd.laptop.mirror import Mirror
from syncd.shared.inbox import Inbox
from syncd.shared.layout import NAME, SLOT, folder_names
from syncd.shared.offers import keep_scene, withdraw
from syncd.streamed import StreamedSlots
from syncd.wire.liveline import SLICE_BYTES, Agent, Credit, grown, shrunk
from syncd.wire.protocol import (
    MOST_OFFERS,
    MOST_WISHES,
    Frame,
    LiveBatch,
    NeedScene,
    NobodyAsked,
    OfferLive,
    SceneSlice,
    SeenLive,
    ShownLive,
    WantedLive,
    WatchLive,
    WireWish,
)
from syncd.wire.session import Session
from syncd.wire.transport import Offer

#: How often wishes, and what of our own may be watched, are looked at; and, while somebody watches these, their rings.
LOOK_EVERY_S, RINGS_EVERY_S = 1.0, 0.2
TIDY_EVERY_S = 60.0
#: A scene that is not there (yet), or not what its name says, is asked for again after this.
AGAIN_AFTER_S = 30.0
#: Scenes that are wanted: of a hundred names only the newest few are kept, for the other side may lie.
MOST_WANTED = 32


class LiveAgents:
    """What a client does with agents at play, connection after connection. `say` takes a sentence; `monotonic` in s.

    `pull`, `push`: whether anything is fetched, and sent, at all.
    """

    def __init__(
        self,
        mirror: Mirror,
        *,
        say: Callable[[str], None],
        pull: bool = True,
        push: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._pull, self._push = say, pull, push
        self._others = _Others(mirror, self._trouble, monotonic)
        self._own = _Own(mirror.folder, self._trouble, monotonic)
        self._notices = Notices()

    @property
    def wait_s(self) -> float:
        """How long nothing is to be done for them, as far as is known."""
        return self._own.wait_s

    def begin(self) -> None:
        """Another connection: the other side knows nothing of what we want or have."""
        self._notices = Notices()
        self._others.begin()
        self._own.begin()

    def turn(
        self,
        transport: Session,
        may_fetch: Callable[[], bool] = lambda: True,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        """Do what is due. `may_fetch`: a scene may be fetched, as no policy waits; `may_send`: no segment waits.

        Errors: UnreachableError; ProtocolError where the other side counts wrongly.
        """
        frames = transport.take_live()
        if self._pull:
            self._others.turn(transport, frames, may_fetch)
        if self._push:
            self._own.turn(transport, frames, may_send)

    def _trouble(self, sentence: str, cause: str = "") -> None:
        """Say it, or another one of the same `cause`, once a connection: there may be ten of them a second."""
        self._notices.trouble(sentence, cause)
        self._notices.tell(self._say)


class _Others:
    """The agents of jobs and of other contributors."""

    def __init__(self, mirror: Mirror, trouble: Callable[..., None], monotonic: Callable[[], float]) -> None:
        self._mirror, self._trouble, self._monotonic = mirror, trouble, monotonic
        self._living: dict[str, Living] = {}
        self._writers: dict[Agent, RingWriter] = {}
        self._scenes: dict[tuple[Agent, str], float] = {}  # → not before
        self._wishes: tuple[WireWish, ...] = ()
        self._told: tuple[WireWish, ...] = ()
        self._agents: set[Agent] = set()
        self._ever: set[Agent] = set()
        self._number = 0
        self._look_at = float("-inf")

    def begin(self) -> None:
        self._told, self._number = (), 0

    def turn(self, transport: Session, frames: Sequence[Frame], may_fetch: Callable[[], bool]) -> None:
        now = self._monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._wishes = self._wanted(now)
        if self._wishes != self._told:
            self._told = self._wishes
            self._agents = {(wish.run_id, wish.slot, wish.lane) for wish in self._wishes}
            self._ever |= self._agents
            self._writers = {agent: writer for agent, writer in self._writers.items() if agent in self._agents}
            transport.say(WatchLive(wishes=self._wishes))
        before = self._number
        for frame in frames:
            match frame.message:
                case LiveBatch() as batch:
                    self._take(batch, frame.payload)
                case NobodyAsked(run_id=run_id, sentence=sentence) if self._wants_run(run_id):
                    self._trouble(sentence, cause=f"nobody asked in {run_id}")
                case ShownLive() as shown if self._wants_run(shown.run_id):
                    self._offer(shown)
        if self._number > before:
            transport.say(SeenLive(number=self._number))
        wanted = next((each for each, at in self._scenes.items() if now >= at), None)
        if wanted is not None and may_fetch():
            self._fetch_scene(transport, *wanted)

    def _wants_run(self, run_id: str) -> bool:
        return any(run_id == wanted for wanted, _, _ in self._agents)

    def _wanted(self, now: float) -> tuple[WireWish, ...]:
        """Of all runs of the mirror together, the first few."""
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
        return tuple(found[:MOST_WISHES])

    def _take(self, batch: LiveBatch, payload: bytes) -> None:
        if batch.number <= self._number:
            raise ProtocolError("wire.live-count")
        self._number = batch.number
        agent = (batch.run_id, batch.slot, batch.lane)
        where = f"{batch.run_id}/{batch.slot} {batch.lane}"
        if agent not in self._agents:
            if agent not in self._ever:
                self._trouble("the other side shows agents that nobody here asked for: they are left out")
            return
        try:
            cell = grown(payload)
            header, _ = checked(batch.kind, cell)
            self._writer(agent).write(batch.kind, cell)
        except BadBatchError as error:
            self._trouble(f"a batch of the agent {where} is left out: {error}", cause=f"a batch of {where}")
        except (NoRoomError, StorageError) as error:
            self._trouble(str(error))
        except OSError as error:
            self._trouble(f"the agent {where} cannot be shown: {error.filename}: {error.strerror}")
        else:
            if batch.kind == POSE:
                self._want_scene(agent, header["scene"])

    def _writer(self, agent: Agent) -> RingWriter:
        if agent not in self._writers:
            path = self._folder(agent) / ring_name(agent[2])
            if not os.path.lexists(path):
                self._check(agent, CELLS * CELL_BYTES)
            self._writers[agent] = RingWriter(path)
        return self._writers[agent]

    def _want_scene(self, agent: Agent, sha256: str) -> None:
        if (agent, sha256) not in self._scenes and not (self._folder(agent) / scene_name(sha256)).exists():
            self._scenes[agent, sha256] = float("-inf")
            while len(self._scenes) > MOST_WANTED:
                del self._scenes[next(iter(self._scenes))]

    def _fetch_scene(self, transport: Session, agent: Agent, sha256: str) -> None:
        """Errors: UnreachableError."""
        del self._scenes[agent, sha256]
        what = f"a scene of {agent[0]}/{agent[1]} is left out"
        path = "/".join((*folder_of(*agent), scene_name(sha256)))
        part = self._mirror.folder / "part" / f"{sha256}.scene"
        try:
            self._check(agent, MOST_SCENE_BYTES)
            part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            transport.fetch(Offer(path, MOST_SCENE_BYTES, None, "scene"), part)
            if keep_scene(self._folder(agent), sha256, part.read_bytes()):
                return
            self._trouble(f"{what}: it has another sum than its name")
        except ChangedError:
            self._trouble(f"{what}: it is larger than any is")
        except GoneError:
            pass
        except (NoRoomError, StorageError) as error:
            self._trouble(str(error))
        except OSError as error:
            self._trouble(f"{what}: its folder cannot be written ({error.strerror})")
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        self._scenes[agent, sha256] = self._monotonic() + AGAIN_AFTER_S

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
            self._trouble(f"contributors' agents cannot be offered: {error.filename}: {error.strerror}")

    def _folder(self, agent: Agent) -> Path:
        return self._mirror.shared.path.joinpath(*folder_of(*agent))

    def _check(self, agent: Agent, size: int) -> None:
        self._mirror.capacity.check_slot(self._mirror.shared.slot(agent[0], agent[1]))
        self._mirror.capacity.check(size)


class _Own:
    """This machine's agents, for watchers elsewhere."""

    def __init__(self, mirror: Path, trouble: Callable[..., None], monotonic: Callable[[], float]) -> None:
        self._slots = StreamedSlots(mirror, monotonic)
        self._trouble, self._monotonic = trouble, monotonic
        self._credit = Credit(monotonic)
        self._asking: dict[str, Asking] = {}
        self._readers: dict[WireWish, RingReader] = {}
        self._newest: dict[WireWish, Cell] = {}
        self._needed: NeedScene | None = None
        self._offers: tuple[tuple[str, int], ...] = ()
        self._told: tuple[tuple[str, int], ...] = ()
        self._look_at = self._tidy_at = self._rings_at = float("-inf")

    @property
    def wait_s(self) -> float:
        return max(0.0, self._rings_at - self._monotonic()) if self._readers else float("inf")

    def begin(self) -> None:
        self._told, self._needed = (), None
        self._credit = Credit(self._monotonic)
        self._want(())

    def turn(self, transport: Session, frames: Sequence[Frame], may_send: Callable[[], bool]) -> None:
        self._look()
        if self._offers != self._told:
            self._told = self._offers
            transport.say(OfferLive(agents=self._offers))
        for message in (frame.message for frame in frames if self._told):
            match message:
                case WantedLive(wishes=wishes, sentence=sentence):
                    self._want(wish for wish in wishes if (wish.run_id, wish.slot) in self._offers)
                    if sentence:
                        self._trouble(sentence, cause="the server's word")
                case NeedScene():
                    self._needed = message
                case SeenLive(number=number):
                    self._credit.hear(number)
        self._renew()
        if self._readers and self._monotonic() >= self._rings_at:
            self._rings_at = self._monotonic() + RINGS_EVERY_S
            if may_send():
                self._send(transport)

    def _look(self) -> None:
        now = self._monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        self._offers = tuple(self._slots.now()[:MOST_OFFERS])
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY_S
            try:
                self._slots.tidy()
            except OSError as error:
                self._trouble(f"what ended actors left cannot be cleared away: {error.filename}: {error.strerror}")

    def _want(self, wishes: Iterable[WireWish]) -> None:
        self._readers = {wish: self._readers.get(wish) or RingReader(self._ring(wish)) for wish in wishes}
        self._newest = {wish: cell for wish, cell in self._newest.items() if wish in self._readers}
        for run_id in {wish.run_id for wish in self._readers} - self._asking.keys():
            self._asking[run_id] = Asking(self._slots.live_file(run_id), self._monotonic)

    def _ring(self, wish: WireWish) -> Path:
        return self._slots.folder(wish.run_id, wish.slot) / ring_name(wish.lane)

    def _renew(self) -> None:
        """Keep the actors told."""
        for run_id, asking in list(self._asking.items()):
            wishes = tuple(Wish(wish.slot, wish.lane, wish.fps) for wish in self._readers if wish.run_id == run_id)
            try:
                asking.renew(wishes)
            except OSError as error:
                self._trouble(f"the actors cannot be told that somebody watches: {error.filename}: {error.strerror}")
            if not wishes:
                del self._asking[run_id]

    def _send(self, transport: Session) -> None:
        for wish, reader in self._readers.items():
            if cells := reader.newer():
                self._newest[wish] = cells[-1]  # an agent that waits keeps its turn
        for wish, cell in list(self._newest.items()):
            if self._credit.allows(len(cell.payload)):
                del self._newest[wish]
                try:
                    checked(cell.kind, cell.payload)
                except BadBatchError as error:
                    self._trouble(f"a batch of this machine's agents is left out: {error}")
                    continue
                payload = shrunk(cell)
                said = LiveBatch(
                    run_id=wish.run_id, slot=wish.slot, lane=wish.lane, number=self._credit.sent(len(payload)),
                    kind=cell.kind,
                )  # fmt: skip
                transport.say(said, payload)
        if self._needed is not None and self._credit.allows(SLICE_BYTES):
            needed, self._needed = self._needed, None
            transport.say(SceneSlice(sha256=needed.sha256, offset=needed.offset), self._slice(needed))

    def _slice(self, needed: NeedScene) -> bytes:
        """Nothing where it is not there: the other side asks again later, if at all."""
        path = self._slots.folder(needed.run_id, needed.slot) / scene_name(needed.sha256)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb") as file:
                return os.pread(file.fileno(), SLICE_BYTES, needed.offset)
        except OSError:
            return b""
