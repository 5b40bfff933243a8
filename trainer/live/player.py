"""A published policy at play on this machine, in real time, into a ring: nothing of it goes over a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from anchorleg.notices import Notices
from anchorleg.places import user_path
from syncd import store
from trainer.envs.spaces import Actions, Obs
from trainer.envs.suite import Suite
from trainer.errors import ConfigError
from trainer.evaluation.playable import Found, of_publication
from trainer.live.episode import Reel, play, put
from trainer.live.folder import LiveFolder
from trainer.live.lanes import chosen, task_of
from trainer.live.stage import ShownTask
from trainer.live.strips import Strip
from trainer.sharing.policies import UnusablePolicyError
from trainer.sharing.selection import Choice

ORIGIN = "played here"
#: A mirror is a local disk; a first policy may be minutes away.
LOOK_S = 1.0


class Player:
    """Plays `place`'s newest policy into `folder` until `stop` is set. `say` gets sentences for the user."""

    def __init__(
        self,
        place: store.SlotPlace,
        folder: LiveFolder,
        lane: str,
        fps: int,
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        self._place, self._folder, self._lane, self._fps = place, folder, lane, fps
        self._stop, self._say = stop, say
        self._notices = Notices()
        self._rng = np.random.default_rng()
        self._shown_at: dict[int, float] = {}
        self._bad: store.Version | None = None
        self._found: Found | None = None
        self._manifest: store.Manifest | None = None
        self._suite: Suite | None = None
        self._stage: ShownTask | None = None
        self._task = -1
        self._episode = 0

    def run(self) -> None:
        """Until `stop`. Errors: ConfigError for a task that the policy does not have; OSError where the folder cannot
        be written; whatever its environment raises.
        """
        try:
            while not self._stop.is_set():
                self._renew()
                self._notices.tell(self._say)
                if self._found is None or self._suite is None:
                    self._stop.wait(LOOK_S)
                    continue
                stage = self._staged(self._found, self._suite)
                self._episode += 1
                self._play(stage, self._found, self._suite)
        finally:
            self._leave()

    def _renew(self) -> None:
        """A newer policy, where there is a good one; else the one before goes on."""
        name = f"{self._place.run_id}/{self._place.slot}"
        try:
            manifest = store.newest(self._place)
            if manifest is None:
                self._notices.trouble(f"{name} has no policy yet: waiting for its first one")
                return
            known = self._manifest.version if self._manifest is not None else None
            if manifest.version in {known, self._bad}:
                return
            found = of_publication(self._place, manifest, "cpu")
        except store.MissingBlobError:
            return  # on its way
        except (UnusablePolicyError, store.DamagedPolicyError, ConfigError) as error:
            self._bad = manifest.version if manifest is not None else None
            self._notices.trouble(f"a policy of {name} cannot be played here: {error}", cause=str(error))
            return
        except OSError as error:
            self._notices.trouble(f"the policies of {name} cannot be read: {error.strerror or error}")
            return
        for note in found.notes:
            self._notices.trouble(note)
        before, self._found, self._manifest = self._found, found, manifest
        self._folder.attempt = manifest.attempt
        if before is None or (before.env, before.goal_seed) != (found.env, found.goal_seed):
            self._leave()
            self._suite = found.suite(found.goal_seed).open()

    def _staged(self, found: Found, suite: Suite) -> ShownTask:
        tasks = found.tasks
        task = chosen(self._lane, range(len(tasks)), self._shown_at)
        if task is None:
            raise ConfigError(f"there is no task {task_of(self._lane)}; this policy has {len(tasks)}, from 0 on")
        if self._stage is None or task != self._task:
            self._leave()
            once = found.env.SUCCESS_AT == "any step"
            self._stage, self._task = ShownTask(suite, task, self._rng, once_is_enough=once), task
            if self._stage.parts is not None:
                try:
                    self._folder.add_scene(tasks[task], self._stage.parts)
                except ValueError as error:
                    self._notices.trouble(f"{tasks[task]} cannot be shown: {error}")
            if self._stage.why_no_picture:
                self._notices.trouble(f"{tasks[task]} cannot be drawn here: {self._stage.why_no_picture}")
        self._shown_at[task] = time.monotonic()
        return self._stage

    def _leave(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()

    def _play(self, stage: ShownTask, found: Found, suite: Suite) -> None:
        """One episode."""
        numbers = np.array([self._task], np.int32)

        def act(obs: Obs) -> Actions | None:
            if stage.stats.length >= suite.spaces.horizon:
                return None
            action: Actions = found.act(obs, numbers)[0]
            return action

        facts: dict[str, str | float | bool] = {"trained steps": float(found.step)}
        if self._manifest is not None:
            facts["policy"] = str(self._manifest.version)
        new = partial(Strip, found.tasks[self._task], self._episode, self._fps, told=suite.tells_success, facts=facts)
        play(
            stage,
            stage.reset(),
            act,
            Reel(new, stage, self._episode, self._fps),
            lambda strip: self._write(strip, stage),
            self._stop,
            once_is_enough=found.env.SUCCESS_AT == "any step",
        )

    def _write(self, strip: Strip, stage: ShownTask) -> None:
        try:
            put(self._folder, self._lane, strip, stage)
        except ValueError as error:
            self._notices.trouble(f"{strip.task} cannot be shown: {error}", cause=type(error).__name__)


def player_of(
    shared: Path,
    run: str,
    slot: int,
    ring: Path,
    lane: str,
    fps: int,
    stop: threading.Event,
    say: Callable[[str], None],
) -> Player:
    """Of slot `slot` of the run of that name or id in `shared`, into the folder `ring`. Errors: ConfigError."""
    choice = Choice("named", run, slot)
    slots = store.Shared(user_path(shared)).slots()
    place = next((place for place in slots if choice.takes(place)), None)
    if place is None:
        there = ", ".join(f"{each.run_id}/{each.slot}" for each in slots) or "nothing"
        raise ConfigError(f"there is no {choice} in {shared}; it has {there}")
    return Player(place, LiveFolder(ring, ORIGIN, 0), lane, fps, stop, say)
