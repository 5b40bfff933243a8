"""Agents of a training, or of actors, shown while they play: the loop looks, a thread writes.

The loop never waits: it copies what the environments have left in memory, and drops it where the thread is behind.
Where the files cannot be written (a full disk), nothing is shown until they can be again; all else goes on. Nothing in
here changes a number of what is played.
"""

from __future__ import annotations

import hashlib
import inspect
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from anchorleg.live.batches import ORIGIN_TRAINING
from anchorleg.live.ring import RingWriter
from anchorleg.live.wanted import ANY, LOOK_EVERY_S, Asked, ring_name, scene_name
from anchorleg.output import Notices
from syncd import store
from trainer.envs.shown import Parts
from trainer.envs.spaces import I32
from trainer.envs.vector import VectorEnv
from trainer.live.scene import BATCH_S, FACTS_S, FrameBuffer, packed_scene

LIVE = "live"
#: Buffers that wait for the thread: four lanes' of about a second.
_MOST_WAITING = 16
#: The pace of the steps is a mean over about so many of them.
_PACE_STEPS = 50
#: After files that could not be written: somebody has to clear the disk, and trying costs little.
AGAIN_AFTER_S = 10.0
#: The thread may be in the middle of a write at the end of the job; a folder that hangs is not waited for.
_CLOSE_WAIT_S = 1.0
#: Steps are not counted in seconds: what is due about now is due.
_NEARLY = 0.9


@dataclass(frozen=True)
class RecorderInputs:
    """What a recorder is told of those who play. `live_file`, `folder`: who asks, and where what is shown goes.

    `origin`: who they are, as each batch says; `pace_of`: the name under which it says how far they are.
    """

    live_file: Path
    folder: Path
    slot: int
    attempt: int
    tasks: Sequence[str]
    tells_success: bool
    origin: str = ORIGIN_TRAINING
    pace_of: str = "trained steps"


class _Scene(NamedTuple):
    task: str
    parts: Parts


@dataclass
class _Lane:
    """What one lane shows: environment `index`, an episode of `task`, after each `every`-th step. None: nothing yet."""

    name: str
    index: int | None = None
    task: int = -1
    episode: int | None = None
    every: int = 1
    due_at: int = 0
    frames: FrameBuffer | None = None
    began_at: float = 0.0
    facts_at: float = float("-inf")


class FrameRecorder:
    """All methods are for the loop's thread and return at once. `folder`: what is shown goes there, by default as
    `given` says. `clock`: monotonic s; `wall`: unix s.
    """

    def __init__(
        self,
        envs: VectorEnv,
        given: RecorderInputs,
        *,
        folder: LiveFolder | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._envs, self._given, self._clock, self._wall = envs, given, clock, wall
        self._folder = folder or LiveFolder(given.folder, given.origin, given.attempt)
        self._wanted: Mapping[str, int] = {}
        self._lanes: dict[str, _Lane] = {}
        self._watched: set[int] = set()
        self._shown_at: dict[int, float] = {}
        self._looked_at: dict[int, bool] = {}  # task → whether it can be drawn
        self._step = -1
        self._count = 0
        self._step_s = 0.0
        self._last_at: float | None = None
        self._notices, self._odd = Notices(), Notices()
        self._queue: queue.Queue[tuple[str, FrameBuffer] | _Scene | None] = queue.Queue(_MOST_WAITING)
        self._is_closing = self._is_behind = self._has_lost = False
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def after(self, step: int, playing: I32) -> None:
        """After each vector step: they are at `step`, and the environments play the tasks `playing` [N] now.

        Errors: EnvError where an environment's worker is lost while it is looked at, and cannot be replaced.
        """
        wanted = self._wanted
        if step == self._step or not (wanted or self._lanes):
            return
        self._step = step
        self._count += 1
        now = self._clock()
        self._keep_pace(now)
        if self._has_lost:  # what tasks look like, too, perhaps
            self._has_lost = False
            self._looked_at.clear()
        for gone in self._lanes.keys() - wanted.keys():
            del self._lanes[gone]
        tasks = playing.tolist()
        for name, fps in wanted.items():
            lane = self._lanes.setdefault(name, _Lane(name))
            if lane.index is not None and lane.due_at <= self._count:
                self._take(lane, lane.index, fps, tasks, now)
            if lane.index is None:
                self._follow(lane, fps, tasks)
        due = self._count + 1
        self._watch({lane.index for lane in self._lanes.values() if lane.due_at <= due and lane.index is not None})
        if not wanted:
            self._last_at = None

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say."""
        self._notices.tell(say)
        self._odd.tell(say)

    def close(self, wait_s: float = _CLOSE_WAIT_S) -> None:
        """Show nothing any more."""
        self._is_closing = True
        self._wanted, self._lanes = {}, {}
        self._is_behind = not self._put(None)
        self._thread.join(wait_s)

    def _keep_pace(self, now: float) -> None:
        """The mean time from one step to the next, since somebody watches."""
        if self._last_at is not None:
            took_s = min(now - self._last_at, FACTS_S)
            self._step_s += (took_s - self._step_s) / (_PACE_STEPS if self._step_s else 1)
        self._last_at = now

    def _every(self, lane: _Lane, fps: int) -> int:
        """So many steps from one picture to the next."""
        apart_s = 1 / fps if self._looked_at.get(lane.task, False) else FACTS_S
        return max(1, round(apart_s / self._step_s)) if self._step_s > 0 else 1

    def _watch(self, indices: set[int]) -> None:
        if indices != self._watched:
            self._envs.watch(indices)
            self._watched = indices

    def _take(self, lane: _Lane, index: int, fps: int, tasks: Sequence[int], now: float) -> None:
        """One more picture of what the lane shows; where its episode is over, the lane is free again."""
        glimpse = self._envs.glimpse(index)
        lane.due_at = self._count + lane.every
        if lane.episode not in {None, glimpse.episode} or tasks[index] != lane.task:
            self._send(lane)
            lane.index, lane.episode = None, None
            return
        lane.episode = glimpse.episode
        is_told = now - lane.facts_at < FACTS_S * _NEARLY  # facts alone are told once a second
        if not glimpse.step or (not glimpse.poses.size and is_told):
            return
        if lane.frames is None:
            given = self._given
            lane.frames = FrameBuffer(given.tasks[lane.task], glimpse.episode, fps, given.tells_success)
            lane.began_at = lane.facts_at = now
            lane.every = self._every(lane, fps)
            lane.due_at = self._count + lane.every
        lane.frames.at, lane.frames.facts = self._wall(), {self._given.pace_of: float(self._step)}
        lane.frames.glimpses.append(glimpse)
        self._shown_at[lane.task] = now
        if lane.frames.is_full or now - lane.began_at >= BATCH_S or not glimpse.poses.size:
            self._send(lane)

    def _follow(self, lane: _Lane, fps: int, tasks: Sequence[int]) -> None:
        index = chosen(lane.name, tasks, self._shown_at)
        if index is None or not self._is_known(tasks[index], index):
            return
        lane.index, lane.task, lane.due_at = index, tasks[index], self._count + 1
        lane.every = self._every(lane, fps)
        self._shown_at[lane.task] = self._clock()

    def _is_known(self, task: int, index: int) -> bool:
        """Whether the thread has, or will have, what the task looks like before its first picture."""
        if task not in self._looked_at:
            parts = self._envs.look(index)
            if parts is not None and not self._put(_Scene(self._given.tasks[task], parts)):
                return False
            self._looked_at[task] = parts is not None
        return True

    def _send(self, lane: _Lane) -> None:
        frames, lane.frames = lane.frames, None
        if frames is not None:
            self._put((lane.name, frames))

    def _put(self, item: tuple[str, FrameBuffer] | _Scene | None) -> bool:
        """False: the thread is behind."""
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        given = self._given
        asked = Asked(given.live_file, given.slot)
        again_at: float | None = None
        try:
            while not self._is_behind:
                rests = again_at is not None and self._clock() < again_at
                if not self._is_closing:
                    lanes = {} if rests else asked.lanes()
                    self._wanted = {lane: fps for lane, fps in lanes.items() if (task_of(lane) or 0) < len(given.tasks)}
                try:
                    item = self._queue.get(timeout=LOOK_EVERY_S)
                except queue.Empty:
                    continue
                if item is None:
                    return
                try:
                    if rests:
                        self._has_lost = True
                        continue
                    self._write(item)
                    self._notices.over("agents are shown again")
                    again_at = None
                except OSError as error:
                    words = f"{given.folder} ({error.strerror or error}); the training continues, and it is tried again"
                    self._notices.trouble(f"agents are not shown now: {words}", cause="disk")
                    again_at = self._clock() + AGAIN_AFTER_S
                    self._has_lost = True
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the showing and not the training
            self._wanted = {}
            words = str(error) or type(error).__name__
            self._notices.trouble(f"agents are no longer shown: {given.folder} ({words}); the training continues")

    def _write(self, item: tuple[str, FrameBuffer] | _Scene) -> None:
        try:
            if isinstance(item, _Scene):
                self._folder.add_scene(item.task, item.parts)
            else:
                self._folder.write(*item)
        except ValueError as error:
            self._odd.trouble(f"an agent cannot be shown: {error}", cause=type(error).__name__)


class LiveFolder:
    """The rings and scenes that one program shows. For one thread. `origin` and `attempt`: as every batch says them;
    the latter may change.

    Errors of all methods: OSError; ValueError where something cannot be shown.
    """

    def __init__(self, path: Path, origin: str, attempt: int) -> None:
        self._path, self._origin, self.attempt = path, origin, attempt
        self._rings: dict[str, RingWriter] = {}
        self._scenes: dict[str, str] = {}

    def add_scene(self, task: str, parts: Parts) -> None:
        """What `task` looks like: before the first frames of it that has poses."""
        data = packed_scene(parts)
        name = hashlib.sha256(data).hexdigest()
        path = self._path / scene_name(name)
        store.make_shared_folder(self._path)
        if not path.exists():
            store.put_once(path, data)
        self._scenes[task] = name

    def write(self, lane: str, frames: FrameBuffer) -> None:
        """The next batch of `lane`; of a task without a scene the facts alone."""
        kind, payload = frames.payload(self._scenes.get(frames.task), self._origin, self.attempt)
        if lane not in self._rings:
            path = self._path / ring_name(lane)
            store.make_shared_folder(self._path)
            store.put_once(path, b"")  # in a group's folder the group may read it
            self._rings[lane] = RingWriter(path)
        self._rings[lane].write(kind, payload)


def task_of(lane: str) -> int | None:
    """The task number of a lane; None: any."""
    return None if lane == ANY else int(lane[1:])


def chosen(lane: str, playing: Sequence[int], shown_at: Mapping[int, float]) -> int | None:
    """The environment that `lane` shows from now on; None: nobody plays what it wants.

    `playing`: each environment's task number, negative where it has none. `shown_at`: when each task was shown last;
    for "any" the one that was not shown for longest is next, and of those never shown the first.
    """
    wanted = task_of(lane)
    candidates = [index for index, task in enumerate(playing) if task >= 0 and wanted in {None, task}]
    return min(
        candidates, key=lambda index: (shown_at.get(playing[index], float("-inf")), playing[index]), default=None
    )


def tells_success(envs: VectorEnv) -> bool:
    """Whether the suite of `envs` says what success is.

    Some would play an episode to find out, which is not worth it here: those tell of successes alone.
    """
    return inspect.getattr_static(envs.suite, "tells_success", None) is True
