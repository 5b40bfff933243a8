"""Agents at play over one connection: what both of its sides do alike, for each may show some and watch others.

A `LiveSender` sends of each agent that the other side wants the newest batch alone, scenes slice by slice, and never
more than the other side has taken. A `LiveReceiver` takes what it asked for: batches are checked and go into rings; a
scene is asked for once a batch names it, one at a time. Nothing else is written, and what is above a limit not queued.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from anchorleg.files import make_shared_folder
from anchorleg.live.batches import JPEG, MOST_SCENE_BYTES, POSE, checked, packed
from anchorleg.live.ring import CELL_BYTES, CELLS, MAX_PAYLOAD_BYTES, Cell, RingReader, RingWriter
from anchorleg.live.wanted import ring_name, scene_name
from syncd.errors import NoRoomError, ProtocolError, StorageError
from syncd.shared.inbox import MOST_SCENES, keep_scene
from syncd.wire.protocol import LiveBatch, Message, NeedScene, SceneSlice, SeenLive

#: Of a scene at once: a second at 256 kbit/s.
SLICE_BYTES = 32 * 1024
#: The other side has not taken so many bytes yet, and nothing more leaves while the oldest is older than this: OpenSSH
#: alone would put 2 MiB of old pictures before a policy or a segment.
MOST_UNSEEN_BYTES = 64 * 1024
MOST_UNSEEN_S = 0.3
#: How often the rings are looked at: each costs an open and a read, perhaps of a network folder.
RINGS_EVERY_S = 0.2
#: A slice that does not come is given up; a scene that did not come is asked for again after this.
STUCK_AFTER_S, AGAIN_AFTER_S = 120.0, 30.0
#: What may come at once, in seconds of the limit.
BURST_S = 0.5
#: A JPEG is packed already.
_STORED, _PACKED = 0, 6

#: Run id, slot, lane (`anchorleg.live.wanted`).
Agent = tuple[str, int, str]


def shrunk(cell: Cell) -> bytes:
    """What goes over the line."""
    return zlib.compress(cell.payload, _STORED if cell.kind == JPEG else _PACKED)


def grown(payload: bytes) -> bytes:
    """The cell's payload; b"", which is no batch, where it is damaged or larger than a cell."""
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(payload, MAX_PAYLOAD_BYTES + 1)
    except zlib.error:
        return b""
    return found if reader.eof and not reader.unused_data and len(found) <= MAX_PAYLOAD_BYTES else b""


class LiveSender:
    """What one side lets the other watch. `opened`: a descriptor of a file by its name in an agent's folder (OSError).
    `clock`: monotonic s.
    """

    def __init__(self, opened: Callable[[Agent, str], int], clock: Callable[[], float]) -> None:
        self._opened, self._clock = opened, clock
        self.agents: dict[Agent, RingReader] = {}
        self._newest: dict[Agent, Cell] = {}
        self._needed: NeedScene | None = None
        self._number = 0
        self._unseen: deque[tuple[int, int, float]] = deque()
        self._look_at = 0.0

    def want(self, agents: Iterable[Agent]) -> None:
        """All that the other side wants to see from now on."""
        self.agents = {agent: self.agents.get(agent) or self._reader(agent) for agent in agents}
        self._newest = {agent: cell for agent, cell in self._newest.items() if agent in self.agents}

    def _reader(self, agent: Agent) -> RingReader:
        name = ring_name(agent[2])
        return RingReader(Path(name), partial(self._opened, agent, name))

    def hear(self, said: SeenLive | NeedScene) -> None:
        """The other side has taken some, or needs a scene. Errors: ProtocolError where what it took was never sent."""
        if isinstance(said, NeedScene):
            self._needed = said
            return
        if said.number > self._number:
            raise ProtocolError("wire.seen-unsent")
        while self._unseen and self._unseen[0][0] <= said.number:
            self._unseen.popleft()

    def _allows(self, size: int) -> bool:
        """Whether so many bytes may leave now."""
        if not self._unseen:
            return True
        is_late = self._clock() - self._unseen[0][2] > MOST_UNSEEN_S
        return not is_late and sum(each[1] for each in self._unseen) + size < MOST_UNSEEN_BYTES

    def next_at(self) -> float:
        """When `next` is worth its while (monotonic s); inf: not before the other side has said something."""
        if not self.agents or not self._allows(0):
            return math.inf
        waits = self._needed or any(self._allows(len(cell.payload)) for cell in self._newest.values())
        return 0.0 if waits else self._look_at

    def next(self, may_be_shown: Callable[[Agent], bool] = lambda _: True) -> tuple[Message, bytes] | None:
        """What leaves next, over a line on which nothing else waits."""
        now = self._clock()
        if now < self.next_at():
            return None
        if (needed := self._needed) is not None:
            self._needed = None
            return SceneSlice(sha256=needed.sha256, offset=needed.offset), self._slice(needed)
        if now >= self._look_at:
            self._look_at = now + RINGS_EVERY_S
            for agent, reader in self.agents.items():
                if may_be_shown(agent) and (cells := reader.newer()):
                    self._newest[agent] = cells[-1]  # an agent that waits keeps its turn
        fits = next((each for each, cell in self._newest.items() if self._allows(len(cell.payload))), None)
        if fits is None:
            return None
        cell = self._newest.pop(fits)
        payload = shrunk(cell)
        self._number += 1
        self._unseen.append((self._number, len(payload), now))
        run_id, slot, lane = fits
        return LiveBatch(run_id=run_id, slot=slot, lane=lane, number=self._number, kind=cell.kind), payload

    def _slice(self, needed: NeedScene) -> bytes:
        """Nothing where it is not there: the other side asks again later, if at all."""
        agent = (needed.run_id, needed.slot, needed.lane)
        if not any(agent[:2] == wanted[:2] for wanted in self.agents):
            return b""
        try:
            with open(self._opened(agent, scene_name(needed.sha256)), "rb") as file:
                return os.pread(file.fileno(), SLICE_BYTES, needed.offset)
        except OSError:
            return b""


class LiveReceiver:
    """What one side sees of the other's. `folder`: where the files of an agent go; `check`: have room for so many bytes
    of it (NoRoomError, StorageError, OSError); `trouble` takes a sentence and its cause. `stamp`: what every batch
    says, whatever came. `kib_s`: no more is taken. `clock`: monotonic s. Errors of its methods: ProtocolError alone.
    """

    def __init__(
        self,
        say: Callable[[Message], None],
        clock: Callable[[], float],
        *,
        folder: Callable[[Agent], Path],
        check: Callable[[Agent, int], None],
        trouble: Callable[[str, str], None],
        stamp: Callable[[], dict[str, Any]] = dict,
        kib_s: float = math.inf,
    ) -> None:
        self._say, self._clock, self._folder, self._check = say, clock, folder, check
        self._trouble, self._stamp, self._kib_s = trouble, stamp, kib_s
        self._writers: dict[Agent, RingWriter | None] = {}
        self._number = 0
        self._free_at = 0.0
        #: (agent, sum) → not before (monotonic s). The newest names alone: the other side may lie.
        self._scenes: dict[tuple[Agent, str], float] = {}
        self._scene: tuple[Agent, str] | None = None
        self._data = b""
        self._asked_at: float | None = None

    def want(self, agents: Iterable[Agent]) -> None:
        """All that this side wants to see from now on."""
        self._writers = {agent: self._writers.get(agent) for agent in agents}

    def _has_room(self) -> bool:
        return self._free_at - self._clock() <= BURST_S

    def _took(self, size: int) -> None:
        self._free_at = max(self._free_at, self._clock()) + size / (1024 * self._kib_s)

    def take(self, agent: Agent, said: LiveBatch, payload: bytes) -> None:
        """A batch of `agent` came. Errors: ProtocolError where the numbers do not rise."""
        if said.number <= self._number:
            raise ProtocolError("wire.live-count")
        self._number = said.number
        self._say(SeenLive(number=said.number))
        if agent not in self._writers or not self._has_room():
            return
        found, where = grown(payload), f"{agent[0]}/{agent[1]} {agent[2]}"
        self._took(max(len(payload), len(found)))  # what is written counts, not how small it was packed
        try:
            header, body = checked(said.kind, found)
            self._write(agent, said.kind, packed({**header, **stamp}, body) if (stamp := self._stamp()) else found)
        except (NoRoomError, StorageError) as error:
            self._trouble(str(error), str(error))
        except ValueError as error:  # BadBatchError is one
            self._trouble(f"a batch of the agent {where} is left out: {error}", f"a batch of {where}")
        except OSError as error:
            self._trouble(f"the agent {where} cannot be shown: {error.filename}: {error.strerror}", where)
        else:
            if said.kind == POSE:
                self._want_scene(agent, header["scene"])

    def _write(self, agent: Agent, kind: int, payload: bytes) -> None:
        path = self._folder(agent) / ring_name(agent[2])
        writer = self._writers[agent]
        if writer is None:
            self._check(agent, 0 if os.path.lexists(path) else CELLS * CELL_BYTES)
            writer = self._writers[agent] = RingWriter(path)
        make_shared_folder(path.parent)  # another connection of the contributor's may have ended
        writer.write(kind, payload)

    def _want_scene(self, agent: Agent, sha256: str) -> None:
        wanted = (agent, sha256)
        if wanted not in self._scenes and not (self._folder(agent) / scene_name(sha256)).exists():
            self._scenes[wanted] = self._clock()
            while len(self._scenes) > MOST_SCENES:
                del self._scenes[next(iter(self._scenes))]

    def turn(self) -> None:
        """Ask for the next slice of a scene, where none is awaited."""
        now = self._clock()
        if self._asked_at is not None and now - self._asked_at > STUCK_AFTER_S:
            self._end(is_here=False)
        if self._scene is None:
            self._scene = next((each for each, at in self._scenes.items() if now >= at), None)
        if self._scene is None or self._asked_at is not None or not self._has_room():
            return
        agent, sha256 = self._scene
        try:
            if not self._data:
                self._check(agent, MOST_SCENE_BYTES)
        except (NoRoomError, StorageError, OSError) as error:
            self._trouble(str(error), str(error))
            self._end(is_here=False)
        else:
            self._asked_at = now
            self._say(NeedScene(run_id=agent[0], slot=agent[1], lane=agent[2], sha256=sha256, offset=len(self._data)))

    def take_slice(self, said: SceneSlice, payload: bytes) -> None:
        """A slice of a scene came; one that was not asked for is passed over."""
        self._took(len(payload))
        if self._scene is None or self._asked_at is None:
            return
        agent, sha256 = self._scene
        if (said.sha256, said.offset) != (sha256, len(self._data)):
            return
        self._asked_at = None
        self._data += payload
        if len(payload) == SLICE_BYTES and len(self._data) <= MOST_SCENE_BYTES:
            return
        what = f"a scene of {agent[0]}/{agent[1]} is left out"
        is_here = False
        try:
            if len(payload) > SLICE_BYTES or len(self._data) > MOST_SCENE_BYTES:
                self._trouble(f"{what}: it is too large", what)
            elif not self._data:
                pass  # it is not there, yet or any more
            elif not (is_here := keep_scene(self._folder(agent), sha256, self._data)):
                self._trouble(f"{what}: its checksum does not match its name", what)
        except OSError as error:
            self._trouble(f"{what}: its folder cannot be written ({error.strerror})", what)
        self._end(is_here=is_here)

    def _end(self, *, is_here: bool) -> None:
        if self._scene is not None:
            self._scenes.pop(self._scene, None)
            if not is_here:
                self._scenes[self._scene] = self._clock() + AGAIN_AFTER_S
        self._scene, self._data, self._asked_at = None, b"", None
