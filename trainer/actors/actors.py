"""Actors: play with the newest policy that a learner published, and write down what is experienced.

The loop is: take the newest verified policy, sample actions, step, record. A newer policy of the same slot is swapped
in between two steps; another slot's where all episodes have just ended, or are broken off. No network is needed once
there is one.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from anchorleg.words import counted
from syncd import store
from syncd.outbox import Outbox
from syncd.played import note_played
from trainer.actors.counts import ActorCounts
from trainer.actors.follower import Followed, Follower, Giver
from trainer.actors.stopping import Stopping
from trainer.actors.streaming import Streaming
from trainer.actors.views import ActorDisplay, Playing
from trainer.envs.collector import Collector
from trainer.envs.memory import MemoryPlan, workers_for
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.vector import VectorEnv
from trainer.errors import DroppedError, EnvironmentFailedError
from trainer.machine.host import read_host
from trainer.sharing.policies import suite_of_manifest
from trainer.sharing.recorder import (
    INCOMING_FULL,
    OUTBOX_FULL,
    WAITING_A_ENV,
    Dispatch,
    Recorder,
    SegmentOrigin,
)
from trainer.sharing.segment import Segment, can_record
from trainer.sharing.selection import Choice

#: Workers that die are started anew so often within `RESTARTS_WITHIN_S`; more is no accident (memory, a broken driver).
MAX_RESTARTS = 3
RESTARTS_WITHIN_S = 600.0
#: How long the end waits for environments that are still being built.
_ABANDON_S = 0.5
#: Between two looks while there is no policy: short beside the time that a person waits.
_WAIT_S = 0.1


@dataclass(frozen=True)
class Plan:
    """What the actors do. `folder`: DIR, where the outbox and the state lie. `steps`, `seconds`: end after so many.

    `giver`: choose the slot by what it needs. `deposit`: where the experience goes instead of the outbox. `stream`:
    others may watch. `averaged`: play with slots' averaged policies.
    """

    folder: Path
    shared: store.Shared
    choice: Choice
    num_envs: int
    workers: int
    device: torch.device
    contribute: bool
    steps: int | None = None
    seconds: float | None = None
    goals_cache: Path | None = None
    giver: Giver | None = None
    deposit: store.Deposit | None = None
    stream: bool = False
    averaged: bool = False


class Stage:
    """The environments of one spec (tasks, goals, horizon), and where they stand.

    `is_boundary`: another slot's policy may take over. Where experience is recorded every environment is then at the
    start of an episode. Else it is enough that one is.
    """

    def __init__(self, manifest: store.Manifest, plan: Plan) -> None:
        self.tasks, self._told = manifest.tasks, manifest.suite
        suite = suite_of_manifest(manifest, plan.goals_cache)
        self.envs = VectorEnv(
            VectorSpec(suite, plan.num_envs, seed=secrets.randbits(31)),  # every actor sees goals of its own
            workers_for(len(self.tasks), MemoryPlan(plan.num_envs, plan.workers), read_host()),
        )
        self.is_boundary = True
        try:
            self.collector = Collector(self.envs)
        except BaseException:
            self.close()
            raise

    def suits(self, manifest: store.Manifest) -> bool:
        """Whether `manifest` plays in the same environments: their packages are this machine's."""
        mine, its = (suite.model_copy(update={"packages": {}}) for suite in (self._told, manifest.suite))
        return (self.tasks, mine) == (manifest.tasks, its)

    def close(self) -> None:
        """End the environments at once: nothing in them is kept."""
        for pid in self.envs.worker_pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.envs.close()


class Building:
    """A stage in the making, in a thread: it takes seconds, in which Ctrl-C must still end the program at once."""

    def __init__(self, manifest: store.Manifest, plan: Plan) -> None:
        tasks = len(manifest.tasks)
        self.words = f"building {counted(plan.num_envs, 'environment')} of {counted(tasks, 'task')}"
        self._stage: Stage | None = None
        self._error: Exception | None = None
        self._is_wanted = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._build, args=(manifest, plan), name="building", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs; the simulator in it can be waited for, not interrupted."""
        return self._thread.is_alive()

    def take(self) -> Stage | None:
        """The stage, once; None while it is not ready. Errors: what building it raised."""
        with self._lock:
            if self._error is not None:
                raise self._error
            stage, self._stage = self._stage, None
            return stage

    def abandon(self) -> None:
        """Nobody waits for it any more: it closes itself."""
        with self._lock:
            self._is_wanted = False
            if self._stage is not None:
                self._stage.close()
        self._thread.join(_ABANDON_S)

    def _build(self, manifest: store.Manifest, plan: Plan) -> None:
        try:
            stage = Stage(manifest, plan)
        except OSError as error:
            self._error = EnvError("env.not-started", why=error.strerror or error)
            return
        except Exception as error:  # noqa: BLE001 - raised again by `take`
            self._error = error
            return
        with self._lock:
            if self._is_wanted:
                self._stage = stage
            else:
                stage.close()


class Actors:
    """One run of `trainer actors`. Errors of `run`: EnvironmentFailedError, DroppedError; of the constructor: none.

    `is_over`: it ended because the training for which it played is complete.
    """

    def __init__(self, plan: Plan, show: ActorDisplay, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self.show = show
        self.counts = ActorCounts(plan.folder, plan.num_envs, plan.workers, str(plan.device))
        self.is_over = False
        self._clock = clock
        self._actor = secrets.token_hex(8)
        self._noise = torch.Generator().manual_seed(secrets.randbits(62))
        self._restarts: deque[float] = deque()
        self._stage: Stage | None = None
        self._building: Building | None = None
        self._abandoned: Building | None = None
        self._recorder: Recorder | None = None
        self._current: Followed | None = None
        self._wanted_since = 0  # another slot is wanted since so many steps, if at all
        self._streaming = Streaming(plan.folder) if plan.stream else None

    def run(self, stop: Stopping) -> Playing:
        """Play until asked to stop, or until the plan's end. Returns the last state."""
        plan = self.plan
        began = self._clock()
        outbox = (plan.deposit or Outbox(plan.folder)) if plan.contribute else None
        follower = Follower(
            plan.shared, plan.choice, plan.device, giver=plan.giver, averaged=plan.averaged, tried=self._tried
        )
        with ExitStack() as stack:
            stack.callback(self._clear)
            if self._streaming is not None:
                stack.callback(self._streaming.close)
            full = OUTBOX_FULL if plan.deposit is None else INCOMING_FULL
            dispatch = Dispatch(outbox.offer, plan.num_envs * WAITING_A_ENV, full=full) if outbox else None
            stack.enter_context(follower)
            self.counts.records(outbox, dispatch)
            while not (stop.asked or self._has_ended(began) or follower.is_over):
                if plan.deposit is not None and plan.deposit.is_dropped:
                    raise DroppedError("actors.dropped", path=plan.shared.path, contributor=plan.deposit.who)
                follower.tell(self.show.say)
                if self._streaming is not None:
                    self._streaming.tell(self.show.say)
                try:
                    if self._is_held_up(follower):
                        self._break_off(dispatch)
                    missing = self._missing(follower)
                    if missing is None:
                        self.counts.unneeded = follower.unneeded if dispatch else None
                        self._step(dispatch)
                    else:
                        self.counts.wait(missing)
                        time.sleep(_WAIT_S)
                except EnvError as error:
                    self._restart(error, dispatch)
                if self.show.is_due(self.counts.doing):
                    self.show.progress(self.counts.playing(self._current))
            if dispatch:
                if self._recorder:
                    self._hand_in(dispatch, self._recorder.rest())
                dispatch.close()
            follower.tell(self.show.say)
        self.is_over = follower.is_over and not stop.asked
        self.counts.doing = "stopped" if stop.asked else "done"
        return self.counts.playing(self._current, is_fresh=True)

    @property
    def is_still_building(self) -> bool:
        """Whether environments that nobody wants any more are still being built: leave without waiting for them."""
        return self._abandoned is not None and self._abandoned.is_alive

    def _is_held_up(self, follower: Follower) -> bool:
        """Whether another slot has been wanted for longer than an episode takes, and what is recorded keeps it waiting:
        where some episodes end early, all of them may never end at once.
        """
        stage, current = self._stage, self._current
        wanted = follower.newest(current, may_change_slot=True)
        if stage is None or current is None or wanted is None or wanted.key == current.key:
            self._wanted_since = self.counts.steps
            return False
        an_episode = stage.envs.spaces.horizon * stage.envs.num_envs
        return not stage.is_boundary and self.counts.steps - self._wanted_since > an_episode

    def _missing(self, follower: Follower) -> str | None:
        """What it waits for: a policy, or environments for it. None: it can act, with the newest that may act now."""
        if follower.resting is not None:
            return follower.resting
        boundary = self._stage is None or self._stage.is_boundary
        newest = follower.newest(self._current, may_change_slot=boundary)
        if newest is None:
            return follower.waiting_for
        manifest = newest.manifest
        if self._stage is None or not self._stage.suits(manifest):
            if self._building is None:
                self._clear()
                self._recorder = None  # its episodes ended with their environments
                self._building = Building(manifest, self.plan)
            self._stage = self._building.take()
            if self._stage is None:
                return self._building.words
            self._building = None
            self.counts.workers = self._stage.envs.num_workers
            if self.counts.workers < min(self.plan.workers, self.plan.num_envs):
                self.show.say(
                    f"{self.counts.workers or 'no'} workers instead of {self.plan.workers}: with "
                    f"{len(self._stage.tasks)} tasks each takes more memory, and there is no more for them"
                )
            return self._missing(follower)  # the policy may be another one by now
        is_other_slot = self._current is None or newest.key != self._current.key
        if self.plan.contribute and (is_other_slot or self._recorder is None):
            origin = SegmentOrigin(manifest.run_id, manifest.slot, self._stage.envs.spaces, self._actor)
            self._recorder = Recorder(origin, self.plan.num_envs) if can_record(origin.spaces) else None
            if self._recorder is None and is_other_slot:
                self.show.say(f"{manifest.run_name}: only rows of numbers can be recorded; playing without")
        if newest is not self._current:
            self.counts.swapped(newest, is_other_slot=is_other_slot)
            self._current = newest
        return None

    def _step(self, dispatch: Dispatch | None) -> None:
        stage, current, recorder = self._stage, self._current, self._recorder
        if stage is None or current is None:
            raise AssertionError("there is a policy and there are environments")
        actions = current.policy.act(stage.collector.obs, stage.collector.task, self._noise)
        transition = stage.collector.step(actions)
        if dispatch and recorder:
            self._hand_in(dispatch, recorder.add(transition.obs, actions, transition.step, current.version))
        finished = transition.step.finished
        stage.is_boundary = bool(finished.any() if recorder is None else finished.all())
        self.counts.stepped(transition.step, stage.tasks)
        if self._streaming is not None:
            self._streaming.after(stage.collector, current, self.counts.steps)

    def _hand_in(self, dispatch: Dispatch, segments: list[Segment]) -> None:
        """Record these, unless nothing is needed: then it was played to be watched alone."""
        if self.counts.unneeded is None:
            dispatch.put(segments)

    def _restart(self, error: EnvError, dispatch: Dispatch | None) -> None:
        """A worker died: what it played so far is kept, and new environments start. Errors: too often."""
        words = str(error).partition("; ")[0]
        now = self._clock()
        while self._restarts and now - self._restarts[0] > RESTARTS_WITHIN_S:
            self._restarts.popleft()
        self._restarts.append(now)
        self._break_off(dispatch)
        if len(self._restarts) > MAX_RESTARTS:
            raise EnvironmentFailedError(
                "actors.restarted-too-often", why=words, times=len(self._restarts), minutes=RESTARTS_WITHIN_S / 60
            ) from error
        self.show.say(f"{words}; starting new environments")

    def _break_off(self, dispatch: Dispatch | None) -> None:
        """End the environments, wherever their episodes are: what was played of those is kept."""
        if dispatch and self._recorder:
            self._hand_in(dispatch, self._recorder.rest())
        self._recorder = None
        self._clear()

    def _clear(self) -> None:
        if self._stage is not None:
            self._stage.close()
        if self._building is not None:
            self._abandoned = self._building
            self._building.abandon()
        self._stage = self._building = None

    def _has_ended(self, began: float) -> bool:
        plan = self.plan
        enough = plan.steps is not None and self.counts.steps >= plan.steps
        return enough or (plan.seconds is not None and self._clock() - began >= plan.seconds)

    def _tried(self, place: store.SlotPlace, manifest: store.Manifest, error: str) -> None:
        """Tell the mirror's `status` whether this machine can play the policy. Called from the follower's thread."""
        if (self.plan.folder / "state").is_dir():
            note_played(self.plan.folder, place, manifest.version, not error, error)
