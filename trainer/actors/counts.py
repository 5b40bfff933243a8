"""What the actors count while they play, and what the files of the mirror say about the rest."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from anchorleg.files import read_json_or_none
from syncd import store
from syncd.outbox import SILENT_AFTER_S, Outbox, read_contributions
from trainer.actors.follower import Followed
from trainer.actors.views import Playing, Recording, TaskScore
from trainer.envs.step import Step
from trainer.sharing.recorder import Dispatch

#: Success is the share of so many last episodes of a task.
LAST_EPISODES = 50
#: Speed is that of so many last seconds.
_RATE_WINDOW_S = 10.0
#: The mirror's files are read this often; syncd writes its own once a second.
_FILES_EVERY_S = 2.0


class ActorCounts:
    """Steps, episodes, speed, success by task, and what became of the segments. `folder` is the mirror (DIR).

    `workers`, and `unneeded` (why nothing is recorded), are for the actors to set.
    """

    def __init__(
        self,
        folder: Path,
        envs: int,
        workers: int,
        device: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.steps = 0
        self.episodes = 0
        self.swaps = 0
        self.doing = "starting"
        self.unneeded: str | None = None
        self._folder = folder
        self.workers = workers
        self._envs, self._device = envs, device
        self._clock, self._wall = clock, wall
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._counts: dict[str, int] = {}
        self._last: dict[str, deque[tuple[bool, float]]] = {}
        self._outbox: Outbox | store.Deposit | None = None
        self._dispatch: Dispatch | None = None
        self._read_at = float("-inf")
        self._recording: Recording | None = None
        self._network: str | None = None

    def records(self, outbox: Outbox | store.Deposit | None, dispatch: Dispatch | None) -> None:
        """Where the segments go; None: nowhere."""
        self._outbox, self._dispatch = outbox, dispatch

    def wait(self, what: str) -> None:
        """Nothing is played: it waits for `what`."""
        self.doing = what
        self._marks = deque([(self._clock(), self.steps)])

    def swapped(self, followed: Followed, *, is_other_slot: bool) -> None:
        """Another policy acts from now on; with another slot the tasks' figures start anew."""
        self.swaps += 1
        if is_other_slot:
            self._counts = dict.fromkeys(followed.manifest.tasks, 0)
            self._last = {}

    def stepped(self, step: Step, tasks: tuple[str, ...]) -> None:
        """Count one step of all environments."""
        self.doing = "playing"
        self.steps += len(step.task)
        now = self._clock()
        if now - self._marks[-1][0] >= 1.0:
            self._marks.append((now, self.steps))
            while now - self._marks[1][0] >= _RATE_WINDOW_S:
                self._marks.popleft()
        for i in np.flatnonzero(step.finished):
            name = tasks[step.task[i]]
            self.episodes += 1
            self._counts[name] += 1
            last = self._last.setdefault(name, deque(maxlen=LAST_EPISODES))
            last.append((bool(step.episode_success[i]), float(step.episode_return[i])))

    def playing(self, current: Followed | None, *, is_fresh: bool = False) -> Playing:
        """Where it stands now. `is_fresh`: read the mirror's files again, however lately that was done."""
        self._read_files(is_fresh=is_fresh)
        manifest = current.manifest if current else None
        return Playing(
            doing=self.doing,
            steps=self.steps,
            episodes=self.episodes,
            steps_per_s=self._rate(),
            envs=self._envs,
            workers=self.workers,
            device=self._device,
            run=manifest.run_id if manifest else "",
            slot=manifest.slot if manifest else 0,
            policy=str(manifest.version) if manifest else None,
            policy_step=manifest.step if manifest else 0,
            policy_age_s=self._wall() - manifest.created_at if manifest else 0.0,
            swaps=self.swaps,
            tasks={name: self._score(name) for name in self._counts},
            recording=self._recording,
            network=self._network,
        )

    def _rate(self) -> float | None:
        at, steps = self._marks[0]
        seconds = self._clock() - at
        return (self.steps - steps) / seconds if seconds >= 1.0 and self.steps > steps else None

    def _score(self, name: str) -> TaskScore:
        last = self._last.get(name)
        if not last:
            return TaskScore(0, 0.0, 0.0)
        success = sum(solved for solved, _ in last) / len(last)
        return TaskScore(self._counts[name], success, sum(total for _, total in last) / len(last))

    def _read_files(self, *, is_fresh: bool) -> None:
        now = self._clock()
        if now - self._read_at < _FILES_EVERY_S and not is_fresh:
            return
        self._read_at = now
        self._network = network_words(self._folder, self._wall())
        if self._outbox and self._dispatch:
            waiting = self._outbox.count()
            accepted, refused, sent = self._judged(self._outbox, waiting)
            self._recording = Recording(
                waiting=waiting,
                recorded=self._dispatch.recorded,
                lost=self._dispatch.lost,
                sent=sent,
                accepted=accepted,
                refused=refused,
                trouble=self._dispatch.trouble or unneeded_words(self.unneeded),
            )

    def _judged(self, outbox: Outbox | store.Deposit, waiting: int) -> tuple[int, Mapping[str, int], int]:
        """(accepted, refused, sent): of this machine's mirror, or of all that this account ever gave to the folder."""
        if isinstance(outbox, store.Deposit):
            judged = outbox.judged()
            return judged.accepted, judged.refused, judged.accepted + sum(judged.refused.values()) + waiting
        counts = read_contributions(self._folder)
        return counts.accepted, counts.refused, counts.sent


def unneeded_words(why: str | None) -> str | None:
    """Why nothing is recorded, as the actors' table says it."""
    return f"{why}; playing goes on without recording" if why else None


def network_words(folder: Path, now: float) -> str | None:
    """What syncd last said about the connection of the mirror `folder`; None where it never ran here."""
    status = read_json_or_none(folder / "state" / "status.json")
    if not isinstance(status, dict):
        return None
    state, at, since = status.get("state"), status.get("written_at"), status.get("since")
    if not isinstance(state, str):
        return None
    if isinstance(at, int | float) and now - at > SILENT_AFTER_S:
        return f"no syncd is running here (last seen {_time(at)}); playing goes on"
    words = f"{state} since {_time(since)}" if isinstance(since, int | float) else state
    return words if state in {"live", "syncing"} else f"{words}; playing goes on"


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%H:%M:%S")
