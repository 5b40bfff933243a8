"""What the actors experience, written down: steps of N environments become segments, and segments go to the outbox.

`Recorder` cuts episodes into segments and looks at no clock; `Dispatch` encodes them and hands them on in a thread of
its own, so that stepping waits for no disk.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from syncd.store import StorageError
from trainer.envs.spaces import F32, STATE, Obs, Spaces
from trainer.envs.step import Step
from trainer.sharing.segment import Segment, encode

#: Looks again this often whether a full outbox, or a full disk, has room.
RETRY_S = 2.0
#: Finished segments that wait for the disk, for each environment: all episodes end together, so one round is usual.
WAITING_A_ENV = 4
#: After the end is asked for, this long for what is still to be written: Ctrl-C promises two seconds.
DRAIN_S = 1.0

#: (a segment, its file) → whether there was room. Errors: OSError, StorageError where it cannot be written.
Offer = Callable[[Segment, bytes], bool]


@dataclass(frozen=True)
class SegmentOrigin:
    """What all segments of one recorder share. `spaces`: of its suite; `actor`: a random hexadecimal number."""

    run_id: str
    slot: int
    spaces: Spaces
    actor: str


class Recorder:
    """Rows of `num_envs` environments until their episodes end.

    A segment is an episode from its beginning, so that it can be done again.
    """

    def __init__(self, origin: SegmentOrigin, num_envs: int) -> None:
        self.origin = origin
        longest = origin.spaces.horizon
        (numbers,), (size,) = origin.spaces.obs[STATE].shape, origin.spaces.action.shape
        self._envs = np.arange(num_envs)
        self._steps = np.zeros(num_envs, np.int64)  # rows that wait
        self._episode = np.zeros(num_envs, np.int64)
        self._task = np.zeros(num_envs, np.int64)
        self._obs = np.empty((num_envs, longest + 1, numbers), np.float32)
        self._action = np.empty((num_envs, longest, size), np.float32)
        self._reward = np.empty((num_envs, longest), np.float32)
        self._flags = {name: np.empty((num_envs, longest), np.uint8) for name in ("success", "terminated", "truncated")}
        self._version = np.empty((num_envs, longest, 2), np.int32)

    def add(self, obs: Obs, actions: F32, step: Step, version: tuple[int, int]) -> list[Segment]:
        """One vector step: `actions` [N, A] of policy `version` (attempt, seq) in `obs` led to `step`.

        Returns the segments that it completed.
        """
        envs, at = self._envs, self._steps
        self._task[:] = step.task
        self._obs[envs, at], self._obs[envs, at + 1] = obs[STATE], step.next_obs[STATE]
        self._action[envs, at], self._reward[envs, at] = actions, step.reward
        for name, array in self._flags.items():
            array[envs, at] = getattr(step, name)
        self._version[envs, at] = version
        self._steps += 1
        done: list[Segment] = []
        for i in np.flatnonzero(step.finished):
            done.append(self._cut(int(i)))
            self._episode[i] += 1
        return done

    def rest(self) -> list[Segment]:
        """The beginnings of unfinished episodes: nothing may be added afterwards."""
        return [self._cut(int(i)) for i in np.flatnonzero(self._steps)]

    def _cut(self, i: int) -> Segment:
        """Environment `i`'s rows as a segment that owns its memory."""
        origin, steps = self.origin, int(self._steps[i])
        segment = Segment(
            run_id=origin.run_id,
            slot=origin.slot,
            task=origin.spaces.tasks[self._task[i]],
            horizon=origin.spaces.horizon,
            env=i,
            episode=int(self._episode[i]),
            actor=origin.actor,
            obs=self._obs[i, : steps + 1].copy(),
            action=np.clip(self._action[i, :steps], -1, 1),  # what a suite does with them
            reward=self._reward[i, :steps].copy(),
            version=self._version[i, :steps].copy(),
            **{name: array[i, :steps].copy() for name, array in self._flags.items()},
        )
        self._steps[i] = 0
        return segment


class Dispatch:
    """Hands segments to `offer` in a background thread, in order.

    Where there is no room (`full`, in words) it keeps what it has and tries again; what does not fit into its own queue
    meanwhile is not recorded and counted in `lost`. `trouble` says why it waits; None: it does not. A defect that ended
    the thread is raised by `put`.
    """

    def __init__(self, offer: Offer, limit: int, retry_s: float = RETRY_S, *, full: str = "no room") -> None:
        self.recorded = 0
        self.lost = 0
        self.trouble: str | None = None
        self._offer, self._full = offer, full
        self._retry_s = retry_s
        self._queue: queue.Queue[Segment | None] = queue.Queue(limit)
        self._defect: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def put(self, segments: list[Segment]) -> None:
        """Hand them over; returns at once."""
        if self._defect is not None:
            raise self._defect
        for segment in segments:
            try:
                self._queue.put_nowait(segment)
            except queue.Full:
                self.lost += 1

    def close(self, drain_s: float = DRAIN_S) -> None:
        """Write what waits, as far as there is room, for at most `drain_s`; what remains counts as lost."""
        self._stop.set()
        with contextlib.suppress(queue.Full):  # where it is full the thread looks at the flag after each segment
            self._queue.put_nowait(None)
        self._thread.join(drain_s)
        while True:
            try:
                self.lost += self._queue.get_nowait() is not None
            except queue.Empty:
                return

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - raised again by `put`: a thread cannot end the program
            self._defect = error

    def _work(self) -> None:
        while not (self._stop.is_set() and self._queue.empty()):
            segment = self._queue.get()
            if segment is None:
                return
            data = encode(segment)
            while not self._offered(segment, data):
                if self._stop.wait(self._retry_s):
                    self.lost += 1
                    break

    def _offered(self, segment: Segment, data: bytes) -> bool:
        try:
            if self._offer(segment, data):
                self.recorded += 1
                self.trouble = None
                return True
        except (OSError, StorageError) as error:
            self.trouble = str(error)
        else:
            self.trouble = self._full
        return False
