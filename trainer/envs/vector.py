"""N environments stepped together, in this process or in workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from trainer.envs import channel
from trainer.envs.foreign import CLOSE_S, is_decided, limited
from trainer.envs.frames import FrameStacks
from trainer.envs.pictures import ready_to_draw
from trainer.envs.shared import SharedBuffers
from trainer.envs.shown import Glimpse, Parts
from trainer.envs.spaces import Actions
from trainer.envs.step import EnvError, Observed, Step, VectorSpec
from trainer.envs.suite import TOLD, StepperChoice, StepperUnavailableError, mismatches
from trainer.envs.workers import DOING, HUNG_S, WorkerPool, longest_s
from trainer.state import State

if TYPE_CHECKING:
    from trainer.envs.group import EnvGroup

T = TypeVar("T")

#: Raised when a state can no longer be read by older code.
_STATE_FORMAT = 2
#: How the frames that stacks are made of are named in a state.
_FRAMES = "frames."

_log = logging.getLogger(__name__)


class VectorEnv:
    """N environments of a suite; the same results for any number of workers (0: in this process) and either stepper.

    Where every task is stepped natively, `num_workers` is the number of threads of this process (0: the caller's), and
    there are no worker processes. Which task an environment plays is `scheduled_task` of its episode count; which
    start, a draw from its own stream.
    A worker that dies or hangs is named in an EnvError; a thread that hangs in the simulator cannot be ended by itself:
    then the whole process stalls, which is the orchestrator's business. After an EnvError the vector is closed: build a
    new one and restore the last state.
    """

    def __init__(self, spec: VectorSpec, num_workers: int = 0, stepper: StepperChoice = "auto") -> None:
        """Start the workers; environments are built when they are first needed.

        Errors: ValueError for an impossible spec; ConfigError where there are pictures to be drawn and nothing draws
        here; EnvError where a worker or the stepper asked for cannot start.
        """
        _check(spec)
        self._driver = ready_to_draw(spec.suite.settings)
        self.spec = spec
        self.suite = spec.suite.open()
        self.spaces = self.suite.spaces
        self.num_envs = spec.num_envs
        self.num_workers = min(num_workers, spec.num_envs)
        self._stacks = FrameStacks(self.spaces, spec.num_envs)
        self._pool: WorkerPool | None = None
        self._group: EnvGroup | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: Future[Any] | None = None
        self._started = False
        self._stepping = False
        self._told: set[str] = set()
        try:
            self._native = self.suite.stepped_natively(stepper)
            self._buffers = SharedBuffers(self.spaces, spec.num_envs, measures=len(spec.suite.settings.MEASURES))
            try:
                self._start()
            except BaseException:
                self._buffers.close()
                raise
        except StepperUnavailableError as error:
            raise EnvError("env.no-stepper", why=str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def stepping(self) -> dict[str, str]:
        """Task name → who steps it: "native" or "python"."""
        return {task: "native" if index in self._native else "python" for index, task in enumerate(self.spaces.tasks)}

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty where there are none."""
        return self._pool.pids if self._pool else []

    def reset(self) -> Observed:
        """Start the first episode of every environment, with the streams of attempt 0."""
        self._ask(channel.START, {"indices": list(range(self.num_envs)), "attempt": 0})
        self._started = True
        obs, task = self._buffers.observed()
        return Observed(self._stacks.begin(obs), task)

    def step(self, actions: Actions) -> Step:
        """Act in every environment: `actions` [N, …] as the spaces say.

        Errors: RuntimeError before `reset` or `restore`; ValueError for another shape or NaN; EnvError.
        """
        self._accept(actions)
        self._ask(channel.STEP)
        return self._made()

    def step_async(self, actions: Actions, *, beside: bool = True) -> None:
        """Begin a `step`; nothing but `step_wait` or `close` may be called before its end. Errors: as `step`.

        It runs beside the caller in worker processes, or on a thread where all tasks are stepped natively; Python in
        this process would only take turns with the caller, so there it is done at once. `beside`: whether the caller
        has something to do meanwhile; if not, no thread is woken.
        """
        self._accept(actions)
        self._stepping = True
        if self._pool:
            self._guarded(self._pool.post, channel.STEP)
            return
        self._ahead = self._begun() if beside else None
        if self._ahead is None:
            self._ask(channel.STEP)

    def step_wait(self) -> Step:
        """The end of the step that `step_async` began. Errors: RuntimeError where there is none; EnvError."""
        if not self._stepping:
            raise RuntimeError("call step_async() before step_wait()")
        self._stepping = False
        if self._pool:
            self._guarded(self._pool.answers)
        elif self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            self._guarded(ahead.result)
        return self._made()

    def watch(self, indices: Collection[int]) -> None:
        """From the next step on each step leaves a `glimpse` of these environments, and of no others."""
        self._must_have_started()
        self._buffers.watched[:] = False
        self._buffers.watched[list(indices)] = True

    def glimpse(self, index: int) -> Glimpse:
        """Environment `index` after the last step, which was `watch`ed. It changes no number of what follows."""
        return self._buffers.glimpse(index)

    def look(self, index: int) -> Parts | None:
        """What environment `index` looks like in its present episode; None: it cannot be shown. Errors: EnvError."""
        self._must_have_started()
        for answer in self._ask(channel.LOOK, {"index": index}):
            if answer.meta is not None:
                meta = answer.meta
                return Parts(tuple(meta["bodies"]), meta["camera"], meta["left_out"], answer.arrays)
        return None

    def _made(self) -> Step:
        """The step that was made, with the stacks that it led to."""
        step = self._buffers.copied()
        next_obs, obs = self._stacks.push(step.next_obs, step.obs, step.finished)
        return replace(step, next_obs=next_obs, obs=obs)

    def _accept(self, actions: Actions) -> None:
        self._must_have_started()
        shape = (self.num_envs, *self.spaces.action.shape)
        if actions.shape != shape:
            raise ValueError(f"actions have shape {actions.shape}, expected {shape}")
        if not np.isfinite(actions).all():
            raise ValueError("actions hold NaN or infinity: the policy diverged; continue from an earlier checkpoint")
        self._buffers.fields["actions"][:] = actions

    def snapshot(self) -> State:
        """Everything that `restore` needs, between two steps; nothing of it changes afterwards. Errors: EnvError."""
        self._must_have_started()
        arrays: dict[str, npt.NDArray[Any]] = {}
        envs: dict[str, Any] = {}
        for answer in self._ask(channel.SNAPSHOT):
            arrays.update(answer.arrays)
            envs.update(answer.meta)
        obs, arrays["task"] = self._buffers.observed()
        arrays.update({f"obs.{key}": array for key, array in obs.items()})
        arrays.update({f"{_FRAMES}{key}": array for key, array in self._stacks.arrays().items()})
        meta = {
            "format": _STATE_FORMAT,
            "versions": dict(self.suite.versions),
            "num_envs": self.num_envs,
            "tasks": list(self.spaces.tasks),
            "suite": dict(self.suite.describe()),
            "envs": {str(i): envs[str(i)] for i in range(self.num_envs)},
            "driver": self._driver,
        }
        self._tell(envs)
        return State(arrays, meta)

    def restore(self, state: State) -> Observed:
        """Go on from `state`, and say where the environments stand.

        N may have changed: kept environments go on in the middle of their episodes, added ones start with the stream
        of (seed, index, attempt), dropped ones are logged. Errors: EnvError where the state is of other tasks,
        or of another suite.
        """
        meta = state.numbers
        self._must_fit(meta)
        before = int(meta["num_envs"])
        kept = range(min(before, self.num_envs))
        answers = self._ask(channel.RESTORE, {str(i): meta["envs"][str(i)] for i in kept}, state.tensors)
        anew = np.arange(self.num_envs) >= before
        anew[[index for answer in answers for index in answer.meta["lost"]]] = True
        added = list(range(before, self.num_envs))
        if added:
            self._ask(channel.START, {"indices": added, "attempt": self.spec.attempt})
            _log.info("environments %d-%d are new and start an episode", added[0], added[-1])
        if before > self.num_envs:
            _log.warning("environments %d-%d are dropped in mid-episode", self.num_envs, before - 1)
        self._started = True
        obs, task = self._buffers.observed()
        frames = {
            name.removeprefix(_FRAMES): array for name, array in state.tensors.items() if name.startswith(_FRAMES)
        }
        return Observed(self._stacks.load(frames, obs), task, anew)

    def close(self) -> None:
        """End the workers. May be called twice."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        if self._pool is not None:
            self._pool.close()
        if self._group is not None:
            with self._limited(CLOSE_S if is_decided() else HUNG_S, "being closed"):
                self._group.close()
        if self._pool is not None or self._group is not None:
            self._buffers.close()
        self._pool = self._group = self._thread = self._ahead = None

    def _limited(self, seconds: float, doing: str) -> AbstractContextManager[Callable[[], None]]:
        """For what the environments do in this process. A step has no limit: a watch over each would cost more."""
        who = f"an environment ({', '.join(self.spaces.tasks)})"
        return limited(seconds, f"{who} has been silent for {seconds:.0f} s while {doing}: see its stacks above")

    @property
    def _is_native(self) -> bool:
        return len(self._native) == len(self.spaces.tasks)

    def _begun(self) -> Future[Any] | None:
        """A step on the thread; None: there is none, or the system has none left."""
        if self._thread is None or self._group is None:
            return None
        try:
            return self._thread.submit(self._group.obey, channel.WorkerMessage(channel.STEP, None, {}))
        except RuntimeError:
            self._thread.shutdown(wait=False, cancel_futures=True)  # or the step would wait for a thread
            self._thread = None
            return None

    def _start(self) -> None:
        if self.num_workers > 0 and not self._is_native:
            self._pool = WorkerPool(self.spec, self.spaces.tasks, self.num_workers, self._buffers, self._native)
            return
        from trainer.envs.group import EnvGroup

        threads = max(1, self.num_workers)
        self._group = EnvGroup(self.spec, self.suite, range(self.num_envs), self._buffers, self._native, threads)
        if self._is_native:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="stepper")

    def _ask(
        self, op: bytes, meta: Any = None, arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> list[channel.WorkerMessage]:
        if self._pool:
            return self._guarded(self._pool.ask, op, meta, arrays)
        if self._group:
            message = channel.WorkerMessage(op, meta, dict(arrays or {}))
            if op == channel.STEP:
                return [self._guarded(self._group.obey, message)]
            with self._limited(longest_s(op), DOING[op]) as tell:
                return [self._guarded(self._group.obey, message, tell)]
        raise EnvError("env.closed")

    def _guarded(self, call: Callable[..., T], *arguments: Any) -> T:
        """`call`; after an EnvError the vector is closed, and nothing is asked again. Errors: EnvError."""
        try:
            return call(*arguments)
        except EnvError:
            self.close()
            raise

    def _tell(self, envs: Mapping[str, Any]) -> None:
        """What the states of `envs` have to say, each sentence once."""
        for meta in envs.values():
            words = (meta["env"] or {}).get(TOLD)
            if words is not None:
                sentence = f"{self.spaces.tasks[meta['task']]}: {words}"
                if sentence not in self._told:
                    _log.warning("%s", sentence)
                    self._told.add(sentence)

    def _must_have_started(self) -> None:
        if not self._started:
            raise RuntimeError("call reset() or restore() before step() or snapshot()")
        if self._stepping:
            raise RuntimeError("a step is under way: call step_wait() first")

    def _must_fit(self, meta: Mapping[str, Any]) -> None:
        if meta["format"] != _STATE_FORMAT:
            raise EnvError("env.state-format", found=meta["format"], wanted=_STATE_FORMAT)
        if tuple(meta["tasks"]) != self.spaces.tasks:
            raise EnvError(
                "env.state-of-other-tasks", found=", ".join(meta["tasks"]), tasks=", ".join(self.spaces.tasks)
            )
        if other := mismatches(meta["suite"], self.suite.describe()):
            raise EnvError("env.state-of-other-settings", what=other[0])
        for name, now in self.suite.versions.items():
            if (then := meta["versions"].get(name)) != now:
                _log.warning("the state is of %s %s, this is %s: not bit-exact", name, then, now)
        if self._driver and (before := meta.get("driver", "")) and before != self._driver:
            words = "frames were drawn by %s, and %s draws here: older frames are kept, new ones may differ"
            _log.warning(words, before, self._driver)


def _check(spec: VectorSpec) -> None:
    if spec.num_envs < 1:
        raise ValueError(f"num_envs is {spec.num_envs}; at least 1 is needed")
    if spec.scripts is not None and len(spec.scripts) != spec.num_envs:
        raise ValueError(f"{len(spec.scripts)} scripts for {spec.num_envs} environments; each needs one")
