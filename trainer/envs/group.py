"""Some of the vector's environments, stepped one after another in one process: a worker's share, or all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

import numpy.typing as npt

from trainer.envs import channel
from trainer.envs.channel import WorkerMessage
from trainer.envs.episodes import EnvInstances, EnvSlot
from trainer.envs.foreign import Settled
from trainer.envs.shared import SharedBuffers
from trainer.envs.shown import bodies_shown, goal_of, parts_of, poses_of, simulation_of
from trainer.envs.spaces import I32
from trainer.envs.step import NO_TASK, EnvError, VectorSpec
from trainer.envs.suite import StepFaultError, Suite

#: Every so many steps it is looked whether observations lie in their space.
_LOOKS_AT = 16

_log = logging.getLogger(__name__)


class EnvGroup:
    """The slots `indices` of `spec`, reading actions from `buffers` and writing their rows of it.

    The episodes of the tasks in `native` are stepped by the suite's stepper, on `threads` threads; which they are
    changes nothing that can be seen. Errors of every method: EnvError that names the environment and its task; of the
    constructor also StepperUnavailableError, where there are native tasks.
    """

    def __init__(
        self,
        spec: VectorSpec,
        suite: Suite,
        indices: Iterable[int],
        buffers: SharedBuffers,
        native: frozenset[int] = frozenset(),
        threads: int = 1,
    ) -> None:
        self._buffers = buffers
        self._fields = buffers.fields
        #: Of each slot that was shown: its model, and which of its bodies are. A reset may make another model.
        self._bodies: dict[int, tuple[Any, I32]] = {}
        self._instances = EnvInstances(suite, remembers=not spec.suite.settings.draws_views)
        places = list(indices)
        is_native = len(native) == len(suite.spaces.tasks)
        self._settled = None if is_native else Settled(f"an environment ({', '.join(suite.spaces.tasks)})")
        self.stepper = (
            suite.stepper(len(places), buffers.fields, threads, stop_at_success=spec.stop_at_success)
            if native
            else None
        )
        self._rows = slice(places[0], places[-1] + 1) if places else slice(0)
        #: Key → the least and the largest number that is not far outside its space; without those that were told.
        self._ranges = {
            key: (2 * spec.low - spec.high, 2 * spec.high - spec.low)
            for key, spec in suite.spaces.obs.items()
            if spec.dtype == "float32" and not is_native and isfinite(spec.high - spec.low)
        }
        self._steps = 0
        self._slots = [
            EnvSlot(index, spec, self._instances, self.stepper.bind(place, index) if self.stepper else None, native)
            for place, index in enumerate(places)
        ]

    def obey(self, message: WorkerMessage, tell: Callable[[], object] = lambda: None) -> WorkerMessage:
        """Do what `message` asks; the answer, for the learner. `tell` is called after each episode that is begun or put
        back.
        """
        if self._settled is None:
            return self._obeyed(message, tell)
        with self._settled:
            return self._obeyed(message, tell)

    def _obeyed(self, message: WorkerMessage, tell: Callable[[], object]) -> WorkerMessage:
        arrays: dict[str, npt.NDArray[Any]] = {}
        meta: dict[str, Any] | None = None
        if message.op == channel.STEP:
            self.step()
        elif message.op == channel.START:
            self.start(message.meta["indices"], message.meta["attempt"], tell)
        elif message.op == channel.SNAPSHOT:
            arrays, meta = self.snapshot()
        elif message.op == channel.RESTORE:
            self.restore(message.arrays, message.meta, tell)
            meta = {"lost": [slot.index for slot in self._slots if slot.was_lost]}
        elif message.op == channel.LOOK:
            arrays, meta = self.look(message.meta["index"])
        else:
            raise EnvError("env.unknown-operation", operation=message.op)
        return WorkerMessage(channel.DONE, meta, arrays)

    def start(self, indices: Iterable[int], attempt: int, tell: Callable[[], object] = lambda: None) -> None:
        """Begin the first episodes of `indices`; numbers of other groups' slots are passed over."""
        wanted = set(indices)
        for slot in self._slots:
            if slot.index in wanted:
                with _named(slot):
                    slot.start(attempt)
                    self._show(slot)
                tell()

    def step(self) -> None:
        """Act in every slot."""
        fields = self._fields
        ended = self._step_natively()
        for slot in self._slots:
            if slot.is_native:
                continue
            i = slot.index
            with _named(slot):
                outcome = slot.step(fields["actions"][i])
                for key, array in outcome.next_obs.items():
                    self._buffers.next_obs[key][i] = array
                fields["reward"][i] = outcome.reward
                fields["terminated"][i] = outcome.terminated
                fields["truncated"][i] = outcome.truncated
                fields["success"][i] = outcome.success
                fields["task"][i] = outcome.task
                total, length, solved = outcome.finished or (0.0, 0, False)
                fields["finished"][i] = outcome.finished is not None
                fields["episode_return"][i] = total
                fields["episode_length"][i] = length
                fields["episode_success"][i] = solved
                fields["episode_measures"][i] = outcome.measures if outcome.finished else 0.0
                self._show(slot)
        for slot in ended:
            with _named(slot):
                slot.end()
                self._show(slot)
        self._steps += 1
        if self._ranges and self._steps % _LOOKS_AT == 1:
            self._look_at_ranges()
        if self._buffers.watched.any():
            for slot in self._slots:
                if self._buffers.watched[slot.index]:
                    self._present(slot)

    def look(self, index: int) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any] | None]:
        """What environment `index` looks like, as (arrays, the rest of its `Parts`); None: it is not here, or cannot be
        shown.
        """
        env = next((slot.env for slot in self._slots if slot.index == index), None)
        try:
            parts = parts_of(env)
        except Exception:  # noqa: BLE001 - a model that nobody thought of: it is played all the same
            parts = None
        if parts is None:
            return {}, None
        return dict(parts.arrays), {"bodies": parts.bodies, "camera": dict(parts.camera), "left_out": parts.left_out}

    def snapshot(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """(arrays named `envs.<i>.…`, meta by `<i>`) of every slot."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        meta: dict[str, Any] = {}
        for slot in self._slots:
            with _named(slot):
                own, meta[str(slot.index)] = slot.snapshot()
            arrays.update({f"envs.{slot.index}.{name}": array for name, array in own.items()})
        return arrays, meta

    def restore(
        self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any], tell: Callable[[], object] = lambda: None
    ) -> None:
        """Put the slots that `meta` names where they were; the others are left alone."""
        of_slot: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            kind, _, rest = name.partition(".")
            number, _, own_name = rest.partition(".")
            if kind == "envs":
                of_slot.setdefault(number, {})[own_name] = array
        for slot in self._slots:
            if str(slot.index) in meta:
                own = of_slot.get(str(slot.index), {})
                with _named(slot):
                    slot.restore(own, meta[str(slot.index)])
                    self._show(slot)
                tell()

    def close(self) -> None:
        """Free the instances, also those in an episode, and the threads. May be called twice."""
        if self.stepper is not None:
            self.stepper.close()
        for slot in self._slots:
            slot.close()
        self._instances.close()

    def _step_natively(self) -> list[EnvSlot]:
        if self.stepper is None:
            return []
        try:
            return [self._slots[place] for place in self.stepper.step()]
        except StepFaultError as fault:
            with _named(self._slots[fault.place]):
                raise

    def _look_at_ranges(self) -> None:
        """Tell, once, of numbers that lie outside their space by more than it is wide."""
        for key, (least, largest) in list(self._ranges.items()):
            given, spec = self._buffers.next_obs[key][self._rows], self._instances.suite.spaces.obs[key]
            low, high = float(given.min()), float(given.max())
            if low < least or high > largest:
                del self._ranges[key]
                names = ", ".join(self._instances.suite.spaces.tasks[:3])
                words = "%s: the observation %r goes from %g to %g, but its space says %g to %g: nets learn badly from "
                _log.warning(words + "large numbers; scale the observation", names, key, low, high, spec.low, spec.high)

    def _present(self, slot: EnvSlot) -> None:
        """Where `slot` stands now, for watchers."""
        episode, stats = slot.standing()
        simulation, at_s, bodies, goal = simulation_of(slot.env), 0.0, 0, None
        if simulation is not None and stats.length:  # a reset that is remembered computes no places
            with suppress(Exception):  # as in `look`: what cannot be shown is played all the same
                at_s, bodies = self._put_poses(slot.index, *simulation)
            goal = goal_of(slot.env)
        self._buffers.put_glimpse(slot.index, episode, stats, at_s, bodies, goal)

    def _put_poses(self, index: int, model: Any, data: Any) -> tuple[float, int]:
        """(simulated s, bodies whose poses are in the buffers now). Errors: whatever somebody else's objects raise."""
        known, shown = self._bodies.get(index, (None, None))
        if shown is None or known is not model:
            shown = bodies_shown(model)
            self._bodies[index] = model, shown
        poses_of(data, shown, self._buffers.poses(index, len(shown)))
        return float(data.time), len(shown)

    def _show(self, slot: EnvSlot) -> None:
        for key, array in slot.obs.items():
            self._buffers.obs[key][slot.index] = array
        self._fields["next_task"][slot.index] = slot.task


class _named:  # noqa: N801 - reads as a word in `with _named(slot)`
    """Whatever is raised inside becomes an EnvError that says in which environment."""

    def __init__(self, slot: EnvSlot) -> None:
        self._slot = slot

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            slot = self._slot
            task = "no task yet" if slot.task == NO_TASK else slot.instances.suite.spaces.tasks[slot.task]
            words = str(error) or type(error).__name__
            raise EnvError("env.failed", number=slot.number, task=task, why=words) from error
