"""One place of the vector: which task and start come next, where the episode stands, and its random stream. And the
instances that the places of one process share, with the resets that they have already done.

The first instance of a task of Meta-World costs 0.09 s to build, another one far less, and each about 20 MiB; a real
reset costs 4 ms. Both can be shared without changing a bit, because a reset's outcome depends on (task, start, seed)
alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.given import check_of
from trainer.envs.spaces import Actions, Obs
from trainer.envs.step import NO_TASK, VectorSpec, scheduled_task
from trainer.envs.suite import Binding, Env, EpisodeLostError, EpisodeStats, Suite
from trainer.state import State

#: Seeds of episodes are 32 bits, as those of a training.
_SEEDS = 2**32
#: How a slot's arrays are named: the present observation's, and those of the environment's own state.
_OBS, _ENV = "obs.", "env."
#: Idle instances kept in one process: 64 x 20 MiB = 1.3 GiB, and more than the 50 tasks that there are, so that
#: slots which walk through all tasks find a free one again.
MAX_IDLE = 64
#: For remembered resets to fixed starts: 50 of 50 tasks at about 10 KiB each take 25 MiB, with frames of one camera of
#: 64 pixels 55.
MAX_REMEMBERED_BYTES = 64 * 2**20
#: Of a remembered reset beside its arrays: names and numbers.
_MORE_BYTES = 4096

_log = logging.getLogger(__name__)


class EnvInstances:
    """Lends instances of `suite` by task index, and begins their episodes."""

    def __init__(self, suite: Suite, *, remembers: bool = True) -> None:
        """`remembers`: whether a start's first observation is always the same, where the suite has fixed starts."""
        self.suite = suite
        self._spare_bytes = MAX_REMEMBERED_BYTES if remembers and suite.starts is not None else 0
        self._idle: list[tuple[int, Env]] = []  # the least recently used first
        self._resets: dict[tuple[int, int], tuple[Obs, State]] = {}

    def borrow(self, task: int) -> Env:
        """An instance of task number `task` in any state: reset or restore it."""
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place][0] == task:
                return self._idle.pop(place)[1]
        return self.suite.make(task)

    def give_back(self, task: int, env: Env) -> None:
        """The counterpart of `borrow`."""
        self._idle.append((task, env))
        if len(self._idle) > MAX_IDLE:
            self._free(*self._idle.pop(0))

    def reset(self, env: Env, task: int, start: int, seed: int = 0) -> Obs:
        """Begin an episode of `env`, of task number `task`; the first observation, which belongs to the caller."""
        known = self._resets.get((task, start))
        if known is not None:
            env.restore(known[1])
            return {key: array.copy() for key, array in known[0].items()}
        obs = env.reset(start, seed)
        if self._spare_bytes > 0:
            state = env.snapshot()
            self._resets[task, start] = {key: array.copy() for key, array in obs.items()}, state
            arrays = (*obs.values(), *state.tensors.values())
            self._spare_bytes -= _MORE_BYTES + sum(int(array.nbytes) for array in arrays)
        return obs

    def close(self) -> None:
        """Free the idle instances."""
        while self._idle:
            self._free(*self._idle.pop())

    def _free(self, task: int, env: Env) -> None:
        """One that cannot be closed keeps none of the others: nobody plays it any more."""
        try:
            env.close()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code
            name = self.suite.spaces.tasks[task]
            _log.warning("an environment (%s) cannot be closed: %s", name, str(error) or type(error).__name__)


@dataclass
class SlotStep:
    """What one step of one slot produced; `finished` is (return, length, success) where an episode ended."""

    next_obs: Obs
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    task: int
    finished: tuple[float, int, bool] | None
    measures: tuple[float, ...] = ()


class EnvSlot:
    """Environment number `index` of `spec`: episodes one after another on `instances`.

    Training: episode e is of task `scheduled_task(number, e, …)`, at a start (or with a seed) drawn from this slot's
    own generator. Evaluation: the episodes of its script, then idle (task `NO_TASK`, zeros).
    With a `binding` the episodes of the tasks in `native` are stepped by its stepper, others by `step`.
    """

    def __init__(
        self,
        index: int,
        spec: VectorSpec,
        instances: EnvInstances,
        binding: Binding | None = None,
        native: frozenset[int] = frozenset(),
    ) -> None:
        self.index = index
        self.number = spec.number(index)
        self.spec = spec
        self.instances = instances
        self.task = NO_TASK
        self.obs: Obs = instances.suite.spaces.no_frames()
        self._binding = binding
        self._native = native
        #: Whether an episode's seed decides something.
        self._has_seeds = instances.suite.starts is None or spec.suite.settings.draws_views
        self._check = check_of(spec.suite.settings, instances.suite.spaces)
        self._once_is_enough = spec.suite.settings.SUCCESS_AT == "any step"
        self._env: Env | None = None
        self._rng = np.random.default_rng()
        self._episode = 0
        self._start = 0
        self._stats = EpisodeStats()
        #: Whether `restore` began another episode than the one that was asked for.
        self.was_lost = False

    @property
    def is_native(self) -> bool:
        """Whether the present episode is stepped by the native stepper: then call `end`, not `step`."""
        return self._binding is not None and self._binding.taken

    @property
    def env(self) -> Env | None:
        """What plays the present episode; None: there is none. Only to be looked at."""
        return self._env

    def standing(self) -> tuple[int, EpisodeStats]:
        """The number of the present episode, and how it has gone so far."""
        self._catch_up()
        return self._episode, self._stats

    def start(self, attempt: int) -> None:
        """Begin the first episode, with the stream of (seed, number, attempt)."""
        self._rng = np.random.default_rng(np.random.SeedSequence([self.spec.seed, self.number, attempt]))
        self._episode, self.was_lost = 0, False
        self._begin()

    def step(self, action: Actions) -> SlotStep:
        """Act; where the episode ends begin the next one, so that `obs` and `task` are what to act on."""
        task, stats, spaces = self.task, self._stats, self.instances.suite.spaces
        if self._env is None:
            return SlotStep(spaces.no_frames(), 0.0, False, False, False, NO_TASK, None)
        outcome = self._env.step(action)
        stats.length += 1
        if self._check is not None:
            outcome = self._check.outcome(outcome, f"at step {stats.length} of its episode")
        stats.total += float(outcome.reward)  # some tasks reward in np.float32, which would make the sum one too
        stats.solved = outcome.success or (stats.solved and self._once_is_enough)
        stopped = self.spec.stop_at_success and outcome.success
        is_cut = outcome.truncated or stats.length >= spaces.horizon or stopped
        truncated = not outcome.terminated and is_cut
        finished = None
        if outcome.terminated or truncated:
            finished = (stats.total, stats.length, stats.solved)
            self.end()
        else:
            self.obs = outcome.obs
        over, success, measures = outcome.terminated, outcome.success, outcome.measures
        return SlotStep(outcome.obs, outcome.reward, over, truncated, success, task, finished, measures)

    def end(self) -> None:
        """The episode is over: begin the next one."""
        self._episode += 1
        self._begin()

    def snapshot(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """(arrays, meta) of this slot between two steps."""
        self._catch_up()
        meta: dict[str, Any] = {
            "task": self.task,
            "episode": self._episode,
            "start": self._start,
            "length": self._stats.length,
            "solved": self._stats.solved,
            "rng": self._rng.bit_generator.state,
            "env": None,
        }
        arrays: dict[str, npt.NDArray[Any]] = {f"{_OBS}{key}": array.copy() for key, array in self.obs.items()}
        arrays["return"] = np.array([self._stats.total])
        if self._env is not None:
            state = self._env.snapshot()
            meta["env"] = state.numbers
            arrays |= {f"{_ENV}{name}": array for name, array in state.tensors.items()}
        return arrays, meta

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Go on from `snapshot`; where its episode is lost, begin another one of its task.

        Errors: EnvError where it does not fit.
        """
        self._catch_up()
        self._release()
        self.task = int(meta["task"])
        self._episode, self._start = int(meta["episode"]), int(meta["start"])
        self.was_lost = False
        self._stats = EpisodeStats(int(meta["length"]), float(arrays["return"][0]), bool(meta["solved"]))
        self.obs = {name.removeprefix(_OBS): np.array(arrays[name]) for name in arrays if name.startswith(_OBS)}
        if self._check is not None:
            self._check.obs(self.obs, "in its state")
        rng = np.random.default_rng(0)
        rng.bit_generator.state = meta["rng"]
        self._rng = rng
        if meta["env"] is not None:
            own = {name.removeprefix(_ENV): array for name, array in arrays.items() if name.startswith(_ENV)}
            self._env = self.instances.borrow(self.task)
            try:
                self._env.restore(State(own, meta["env"]))
            except EpisodeLostError as lost:
                _log.warning(
                    "environment %d (%s) restarts an episode, and %d steps are lost: %s",
                    self.number, self.instances.suite.spaces.tasks[self.task], self._stats.length, lost,
                )  # fmt: skip
                self.was_lost = True
                self._begin()
                return
        self._bind()

    def close(self) -> None:
        """Give its environment back, in the middle of an episode."""
        self._release()

    def _begin(self) -> None:
        self._catch_up()
        task, start, seed = self._next_episode()
        if self._env is None or task != self.task:
            self._release()
            self._env = None if task == NO_TASK else self.instances.borrow(task)
        self.task, self._start, self._stats = task, start, EpisodeStats()
        if self._env is None:
            self.obs = self.instances.suite.spaces.no_frames()
        else:
            self.obs = self.instances.reset(self._env, task, start, seed)
            if self._check is not None:
                self._check.obs(self.obs, "at its reset")
        self._bind()

    def _next_episode(self) -> tuple[int, int, int]:
        """(task, start, seed)."""
        suite = self.instances.suite
        if self.spec.scripts is not None:
            episodes = self.spec.scripts[self.index].episodes
            if self._episode >= len(episodes):
                return NO_TASK, 0, 0
            task, start = episodes[self._episode]
            return task, start, seed_of(self.spec.suite.seed, task, start) if self._has_seeds else 0
        task = scheduled_task(self.number, self._episode, self.spec.all_envs, len(suite.spaces.tasks))
        start = 0 if suite.starts is None else int(self._rng.integers(suite.starts))
        return task, start, int(self._rng.integers(_SEEDS)) if self._has_seeds else 0

    def _release(self) -> None:
        if self._env is not None:
            self.instances.give_back(self.task, self._env)
            self._env = None

    def _catch_up(self) -> None:
        if self._binding is not None and self._binding.taken:
            self._stats, observed = self._binding.read()
            self.obs = self.obs if observed is None else observed

    def _bind(self) -> None:
        if self._binding is None:
            return
        if self._env is not None and self.task in self._native:
            self._binding.take(self._env, self.task, self._stats)
        else:
            self._binding.leave()


def seed_of(seed: int, task: int, number: int) -> int:
    """Of episode `number` of a script, in a suite without fixed starts: the same for the same suite."""
    return int(np.random.SeedSequence([seed, task, number]).generate_state(1)[0])
