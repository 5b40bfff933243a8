"""Actors: play with the newest policy that a learner published, and write down what is experienced.

The loop is: take the newest verified policy, sample actions, step, record. A newer policy of the same slot is swapped
in between two steps; for another slot's the episodes are broken off, and environments are built anew. No network is
needed once there is one.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch

from anchorleg.output import Notices
from anchorleg.words import counted
from syncd import store
from syncd.outbox import Outbox, note_played
from syncd.streamed import StreamedSlot
from trainer.actors.follower import Followed, Follower, Giver
from trainer.actors.views import ActorCounts, ActorDisplay, Playing
from trainer.envs.collector import Collector
from trainer.envs.memory import MemoryPlan, workers_for
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.vector import VectorEnv
from trainer.errors import DroppedError, EnvironmentFailedError
from trainer.live.recorder import AGAIN_AFTER_S, FrameRecorder, RecorderInputs, tells_success
from trainer.machine.host import read_host
from trainer.sharing.policies import suite_of_manifest
from trainer.sharing.recorder import WAITING_A_ENV, Dispatch, Recorder, SegmentOrigin
from trainer.sharing.segment import Segment, can_record
from trainer.sharing.selection import Choice

#: Workers that die are started anew so often within `RESTARTS_WITHIN_S`; more is no accident (memory, a broken driver).
MAX_RESTARTS = 3
RESTARTS_WITHIN_S = 600.0
#: Between two looks while there is no policy: short beside the time that a person waits.
_WAIT_S = 0.1
#: Of what is shown: the other side writes the contributor's name in its place.
ORIGIN = "actors"


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came, in the main thread. A second Ctrl-C interrupts: something hangs."""
    heard: list[int] = []

    def hear(number: int, _frame: FrameType | None) -> None:
        if heard and number == signal.SIGINT:
            raise KeyboardInterrupt
        heard.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(heard)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    """The environments of one spec (tasks, goals, horizon), and where they stand."""

    def __init__(self, manifest: store.Manifest, plan: Plan) -> None:
        self.tasks, self._told = manifest.tasks, manifest.suite
        suite = suite_of_manifest(manifest, plan.goals_cache)
        self.envs = VectorEnv(
            VectorSpec(suite, plan.num_envs, seed=secrets.randbits(31)),  # every actor sees goals of its own
            workers_for(len(self.tasks), MemoryPlan(plan.num_envs, plan.workers), read_host()),
        )
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


class Streaming:
    """What `--stream` lets others see: agents while somebody watches them, in the mirror `folder` for `syncd`.
    It takes nothing from what is played or recorded. For the loop's thread; its methods return at once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notices = Notices()
        self._shown: object = None  # the environments, the slot and the attempt
        self._slot: StreamedSlot | None = None
        self._recorder: FrameRecorder | None = None
        self._again_at = float("-inf")

    def after(self, collector: Collector, current: Followed, steps: int) -> None:
        """After each vector step with this policy; `steps`: made so far. Errors: EnvError, as `FrameRecorder.after`."""
        if time.monotonic() < self._again_at:
            return
        try:
            if self._shown != (shown := (collector.envs, current.key, current.manifest.attempt)):
                self.close()
                if isinstance(collector.envs, VectorEnv):
                    self._begin(collector.envs, current)
                self._shown = shown
            if self._slot is not None:
                self._slot.beat()
        except OSError as error:
            self._again_at = time.monotonic() + AGAIN_AFTER_S
            words = f"{error.filename}: {error.strerror}"
            self._notices.trouble(f"agents are not shown: {words}; playing continues, and it is tried again", "folder")
            self.close()
            return
        if self._recorder is not None:
            self._recorder.after(steps, collector.task)

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say."""
        self._notices.tell(say)
        if self._recorder is not None:
            self._recorder.tell(say)

    def close(self) -> None:
        """Nobody plays any more, or somebody else."""
        slot, recorder = self._slot, self._recorder
        self._slot, self._recorder, self._shown = None, None, None
        if recorder is not None:
            recorder.close()
            recorder.tell(self._notices.note)
        if slot is not None:
            try:
                slot.close()
            except OSError as error:
                self._notices.trouble(f"the shown agent cannot be withdrawn: {error.filename}: {error.strerror}")

    def _begin(self, envs: VectorEnv, current: Followed) -> None:
        manifest = current.manifest
        self._slot = StreamedSlot(self._folder, manifest.run_id, manifest.slot)
        self._slot.beat()
        given = RecorderInputs(
            live_file=self._slot.live_file,
            folder=self._slot.folder,
            slot=manifest.slot,
            attempt=manifest.attempt,
            tasks=manifest.tasks,
            tells_success=tells_success(envs),
            origin=ORIGIN,
            pace_of="steps of these actors",
        )
        self._recorder = FrameRecorder(envs, given)


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
        self._recorder: Recorder | None = None
        self._dispatch: Dispatch | None = None
        self._current: Followed | None = None
        self._streaming = Streaming(plan.folder) if plan.stream else None

    def run(self, is_asked: Callable[[], bool]) -> Playing:
        """Play until asked to stop, which is looked at before every step, or until the plan's end. Returns the last
        state.
        """
        plan = self.plan
        began = self._clock()
        follower = Follower(
            plan.shared, plan.choice, plan.device, giver=plan.giver, averaged=plan.averaged, tried=self._tried
        )
        with ExitStack() as stack:
            stack.callback(self._clear)
            if self._streaming is not None:
                stack.callback(self._streaming.close)
            if plan.contribute:
                self._record()
            stack.enter_context(follower)
            while not (is_asked() or self._has_ended(began) or follower.is_over):
                if plan.deposit is not None and plan.deposit.is_dropped:
                    raise DroppedError("actors.dropped", path=plan.shared.path, contributor=plan.deposit.who)
                follower.tell(self.show.say)
                if self._streaming is not None:
                    self._streaming.tell(self.show.say)
                newest = follower.newest()
                try:
                    if newest is None or follower.resting is not None:
                        self.counts.wait(follower.resting or follower.waiting_for)
                        time.sleep(_WAIT_S)
                    else:
                        self.counts.unneeded = follower.unneeded if self._dispatch else None
                        self._step(*self._prepared(newest))
                        began = self._clock() if self.counts.steps <= plan.num_envs else began  # built, and begun
                except EnvError as error:
                    self._restart(error)
                self._progress()
            self._break_off()
            if self._dispatch is not None:
                self._dispatch.close()
            follower.tell(self.show.say)
        self.is_over = follower.is_over and not is_asked()
        self.counts.doing = "stopped" if is_asked() else "done"
        return self.counts.playing(self._current, is_fresh=True)

    def _record(self) -> None:
        """What is played goes to the outbox, or to the learner's folder itself."""
        place: Outbox | store.Deposit = self.plan.deposit or Outbox(self.plan.folder)
        full = "the outbox is full" if self.plan.deposit is None else "this account's limit is reached"

        def offer(segment: Segment, data: bytes) -> bool:
            return place.offer(segment.run_id, segment.slot, data)

        self._dispatch = Dispatch(offer, self.plan.num_envs * WAITING_A_ENV, full=full)
        self.counts.records(place, self._dispatch)

    def _progress(self) -> None:
        if self.show.is_due(self.counts.doing):
            self.show.progress(self.counts.playing(self._current))

    def _prepared(self, newest: Followed) -> tuple[Stage, Followed]:
        """Environments for `newest`, which acts from now on. Errors: EnvError."""
        stage, current, manifest = self._stage, self._current, newest.manifest
        if stage is not None and newest is current:
            return stage, newest
        is_other_slot = current is None or newest.key != current.key
        if stage is None or is_other_slot or not stage.suits(manifest):
            self._break_off()
            tasks = counted(len(manifest.tasks), "task")
            self.counts.wait(f"building {counted(self.plan.num_envs, 'environment')} of {tasks}")
            self._progress()
            try:
                self._stage = stage = Stage(manifest, self.plan)
            except OSError as error:
                raise EnvError("env.not-started", why=error.strerror or error) from error
            self.counts.workers = stage.envs.num_workers
            if self.plan.contribute:
                self._begin_recording(stage, manifest)
        if newest is not current:
            self.counts.swapped(newest, is_other_slot=is_other_slot)
            self._current = newest
        return stage, newest

    def _begin_recording(self, stage: Stage, manifest: store.Manifest) -> None:
        origin = SegmentOrigin(manifest.run_id, manifest.slot, stage.envs.spaces, self._actor)
        if can_record(origin.spaces):
            self._recorder = Recorder(origin, self.plan.num_envs)
        else:
            self.show.say(f"{manifest.run_name}: playing without recording, which needs rows of numbers")

    def _step(self, stage: Stage, current: Followed) -> None:
        actions = current.policy.act(stage.collector.obs, stage.collector.task, self._noise)
        transition = stage.collector.step(actions)
        if self._recorder is not None:
            self._hand_in(self._recorder.add(transition.obs, actions, transition.step, current.version))
        self.counts.stepped(transition.step, stage.tasks)
        if self._streaming is not None:
            self._streaming.after(stage.collector, current, self.counts.steps)

    def _hand_in(self, segments: list[Segment]) -> None:
        """Record these, unless nothing is needed: then it was played to be watched alone."""
        if self.counts.unneeded is None and self._dispatch is not None:
            self._dispatch.put(segments)

    def _restart(self, error: EnvError) -> None:
        """A worker died: what it played so far is kept, and new environments start. Errors: too often."""
        words = str(error).partition("; ")[0]
        now = self._clock()
        while self._restarts and now - self._restarts[0] > RESTARTS_WITHIN_S:
            self._restarts.popleft()
        self._restarts.append(now)
        self._break_off()
        if len(self._restarts) > MAX_RESTARTS:
            raise EnvironmentFailedError(
                "actors.restarted-too-often", why=words, times=len(self._restarts), minutes=RESTARTS_WITHIN_S / 60
            ) from error
        self.show.say(f"{words}; starting new environments")

    def _break_off(self) -> None:
        """End the environments, wherever their episodes are: what was played of those is kept."""
        if self._recorder is not None:
            self._hand_in(self._recorder.rest())
        self._recorder = None
        self._clear()

    def _clear(self) -> None:
        if self._stage is not None:
            self._stage.close()
        self._stage = None

    def _has_ended(self, began: float) -> bool:
        plan = self.plan
        enough = plan.steps is not None and self.counts.steps >= plan.steps
        return enough or (plan.seconds is not None and self._clock() - began >= plan.seconds)

    def _tried(self, place: store.SlotPlace, manifest: store.Manifest, error: str) -> None:
        """Tell the mirror's `status` whether this machine can play the policy. Called from the follower's thread."""
        if (self.plan.folder / "state").is_dir():
            note_played(self.plan.folder, place, manifest.version, not error, error)
