"""Episodes of a training that are played again to be drawn: the training's side of `trainer.live.rerun`.

An environment that draws itself is drawn in a process of its own, from the seed and the actions: drawing may change
what it does next, takes longer than a step, and is somebody else's code, which may hang or crash.
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from anchorleg.notices import Notices
from trainer.envs import channel
from trainer.envs.workers import end, spawn_worker
from trainer.live.keeper import KeptEpisode

PROGRAM = "trainer.live.rerun"
#: To start, and to build an environment: from a cold network folder that can take minutes.
_BEGIN_S = 300.0
#: From one picture, or word, of it to the next.
_SILENT_S = 60.0
#: After a failure: it may have been the disk, or the machine.
AGAIN_AFTER_S = 60.0


class Rerun(NamedTuple):
    """What is played again: episode number `episode` of task `task`. `about`: facts of it."""

    task: int
    episode: int
    fps: int
    kept: KeptEpisode
    about: Mapping[str, str | float | bool]


class Reruns:
    """One process a lane, begun with its first episode. All methods return at once. `setup`: for the process."""

    def __init__(self, setup: Mapping[str, Any], notices: Notices) -> None:
        self._setup, self._notices = setup, notices
        self._lanes: dict[str, _Lane] = {}

    def wants(self, lane: str) -> bool:
        """Whether one more episode would be shown: none waits."""
        return lane not in self._lanes or self._lanes[lane].wants or self._may_begin_anew(lane)

    def shows(self, lane: str) -> bool:
        """Whether there are pictures of it."""
        return lane in self._lanes and self._lanes[lane].shows

    def put(self, lane: str, rerun: Rerun) -> None:
        """Play this when the one before is over."""
        if lane not in self._lanes or self._may_begin_anew(lane):
            self._lanes[lane] = _Lane({**self._setup, "lane": lane}, self._notices)
        self._lanes[lane].put(rerun)

    def _may_begin_anew(self, lane: str) -> bool:
        over_at = self._lanes[lane].over_at
        return over_at is not None and time.monotonic() > over_at + AGAIN_AFTER_S

    def drop(self, lane: str) -> None:
        """Nobody looks any more."""
        if lane in self._lanes:
            self._lanes.pop(lane).close()

    def close(self) -> None:
        """Show nothing any more."""
        for lane in list(self._lanes):
            self.drop(lane)


class _Lane:
    def __init__(self, setup: Mapping[str, Any], notices: Notices) -> None:
        self._setup, self._notices = setup, notices
        self._waiting: queue.Queue[Rerun | None] = queue.Queue()
        self._is_over = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.shows = False
        self.over_at: float | None = None
        threading.Thread(target=self._run, name="rerun", daemon=True).start()

    @property
    def wants(self) -> bool:
        """Whether one more would be shown."""
        return not self._is_over and self._waiting.empty()

    def put(self, rerun: Rerun) -> None:
        """For its thread."""
        self._waiting.put(rerun)

    def close(self) -> None:
        """End its process, whatever that does."""
        self._waiting.put(None)
        with self._lock:
            self._is_over, process = True, self._process
        if process is not None:
            process.kill()

    def _run(self) -> None:
        try:
            first = self._waiting.get()
            if first is not None:
                self._play_all(first)
        except (EOFError, OSError) as error:
            if not self._is_over:
                words = "its process has ended" if isinstance(error, EOFError) else str(error) or "it hangs"
                self._notices.trouble(f"episodes cannot be drawn ({words}): numbers are shown", cause="rerun")
        finally:
            self._is_over, self.shows, self.over_at = True, False, time.monotonic()

    def _play_all(self, first: Rerun) -> None:
        process, line = spawn_worker(program=PROGRAM)
        try:
            with self._lock:
                self._process = process
                if self._is_over:
                    return
            line.send(channel.SETUP, self._setup, limit_s=_BEGIN_S)
            self._hear(line, _BEGIN_S)
            rerun: Rerun | None = first
            while rerun is not None:
                self._play(line, rerun)
                rerun = self._waiting.get()
        finally:
            line.close()
            with suppress(OSError):
                process.kill()
            end(process)

    def _play(self, line: channel.Channel, rerun: Rerun) -> None:
        meta = {
            "task": rerun.task,
            "episode": rerun.episode,
            "fps": rerun.fps,
            "seed": rerun.kept.seed,
            "total": rerun.kept.total,
            "about": dict(rerun.about),
        }
        line.send(channel.START, meta, {"actions": rerun.kept.actions}, limit_s=_SILENT_S)
        limit_s = _BEGIN_S
        while self._hear(line, limit_s) == channel.DOING:
            self.shows, limit_s = True, _SILENT_S

    def _hear(self, line: channel.Channel, limit_s: float) -> bytes:
        """Errors: OSError with what the process says."""
        answer = line.receive(limit_s)
        if answer.op == channel.FAILED:
            raise OSError(str(answer.meta))
        return answer.op
