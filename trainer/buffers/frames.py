"""A replay of pictures: each frame is kept once, and stacks, clips and returns of several steps are put together when a
batch is drawn.

A row is what was observed after a step, with the step that led there; the first row of an episode has none. An episode
of L steps is L + 1 rows, and what is not a stack (numbers of a state, features) is kept once as well. Each row says how
far back its episode's row before lies, since the rows of several environments come by turns. All pointers lead to
older rows, so blocks of rows can be written, and laid back, in any cut.

Shapes: N environments, K tasks, B transitions; R frames from the oldest to the newest one that is seen, n steps whose
rewards are summed up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.buffers.replay import Block, Ring
from trainer.buffers.rows import OBS, BadRowsError, Batch
from trainer.buffers.storage import zeros
from trainer.config.network import Network
from trainer.config.pictures import PictureSettings
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, I64, PRIVILEGED, STATE, ArraySpec, Bools, Obs, Spaces
from trainer.errors import FieldError

#: How often what cannot be drawn is drawn anew, before all that can be is looked up: it is a few in a hundred.
_DRAWS = 16
#: Rows that are looked through at a time.
_BLOCK = 4096
#: What a row takes beside its fields: `FrameReplay._ahead`.
POINTER_BYTES = 4
#: Where an environment has no row to go on from.
_NONE = -1


def keeps_frames(spaces: Spaces, network: Network) -> bool:
    """Whether what a training sees is kept like this: where there are pictures, stacks, or features that a frozen
    encoder made of them.
    """
    if any(network.freezes(key) for key in spaces.obs.keys() - {STATE, PRIVILEGED}):
        return True
    return any(is_picture(spec) or spec.stack > 1 for spec in spaces.obs.values())


def check_frames(spaces: Spaces, training: Training) -> None:
    """Only an environment itself knows what it gives. Errors: FieldError where it gives fewer frames than are asked
    for, or a replay of frames is to lie on a GPU or is too short for its environments. `spaces`: of what is kept.
    """
    if isinstance(training.env, PictureSettings):
        why = training.env.longer_than_an_episode(spaces.horizon, "the environment's own limit")
        if why is not None:
            raise FieldError.at("", "training.env.frame_stack", why)
    if not training.uses_experience or not keeps_frames(spaces, training.network):
        return
    if training.replay_on == "device":
        raise FieldError("replay.frames-on-device")
    reach = max(spec.reach for spec in spaces.obs.values())
    why = training.off_policy.short_of_frames(len(training.env.tasks), training.num_envs, reach)
    if why is not None:
        raise FieldError.at("", "training.algorithm.buffer_size", why)


def is_picture(spec: ArraySpec) -> bool:
    """Whether it is one, or several."""
    return spec.dtype == "uint8" and len(spec.shape) >= 3


def fields_of(spaces: Spaces) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """What a row has: `obs.<key>` after the step, and the step itself; `ended`: the episode is over, or cut; `back`: so
    many rows of its task before lies the row before, 0: there is none.
    """
    return {
        **{f"{OBS}{key}": (spec.frame, np.dtype(spec.dtype)) for key, spec in spaces.obs.items()},
        "action": (spaces.action.shape, np.dtype(spaces.action.dtype)),
        "reward": ((), np.dtype(np.float32)),
        "terminated": ((), np.dtype(np.uint8)),
        "ended": ((), np.dtype(np.uint8)),
        "back": ((), np.dtype(np.int32)),
    }


def newest(spec: ArraySpec, seen: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The newest frame [N, *frame] of what is `seen` [N, *shape]."""
    if spec.stack == 1:
        return seen
    return seen[:, -1] if spec.is_clip else seen[:, -spec.frame[0] :]


class FrameReplay(Ring):
    """`capacity` rows in all; transitions of up to `steps` steps, whose rewards are discounted by `gamma`.

    A batch is drawn from all steps that are whole: their frames are still there, and so are the steps behind them, as
    far as their episode goes. Those of an episode that could not be brought back stay without its last `steps` - 1.
    """

    def __init__(self, capacity: int, num_tasks: int, spaces: Spaces, steps: int = 1, gamma: float = 1.0) -> None:
        super().__init__(capacity, num_tasks, fields_of(spaces))
        self._specs, self._data = spaces.obs, self.storage.arrays()
        self._reach = max(spec.reach for spec in spaces.obs.values())
        self._steps, self._powers = steps, gamma ** np.arange(steps, dtype=np.float64)
        #: How many rows ahead the next one of the same episode lies; 0: it has not come. It follows from `back`.
        self._ahead = zeros((self.capacity * num_tasks,), np.int32)
        #: Of each environment the task and the number of its episode's last row, which the next one goes on from.
        self._task, self._last = np.zeros(0, np.int64), np.zeros(0, np.int64)
        #: Of each task the oldest row that some step needs which could be drawn; as long as that is there, it can be.
        self._known = np.full(num_tasks, _NONE, np.int64)

    def add(self, transition: Transition) -> None:
        """Append one step of all environments. Where one does not act in what its last row shows, because an episode
        began, or could not be brought back, a first row comes before.
        """
        done, count = transition.step, len(transition.step.task)
        self._stand_at(count)
        goes_on = self._goes_on(done.task, transition.obs)
        each = np.where(goes_on, 1, 2)
        env, after = np.repeat(np.arange(count), each), np.cumsum(each) - 1
        is_step = np.ones(len(env), np.bool_)
        is_step[after[~goes_on] - 1] = False
        task = done.task[env]
        number = self._numbered(task)
        places = self._places(task, number)
        before = np.where(goes_on, self._last, number[after - 1])  # of an episode that begins, the row just appended
        back = np.zeros(len(env), np.int64)
        back[after] = number[after] - before
        for key, spec in self._specs.items():
            frames = newest(spec, done.next_obs[key])[env]
            frames[~is_step] = newest(spec, transition.obs[key])[env[~is_step]]
            self._data[f"{OBS}{key}"][places] = frames
        for name, values in (
            ("action", transition.action),
            ("reward", done.reward),
            ("terminated", done.terminated),
            ("ended", done.finished),
        ):
            rows = np.zeros((len(env), *values.shape[1:]), self._data[name].dtype)
            rows[is_step] = values
            self._data[name][places] = rows
        self._data["back"][places] = back
        self._ahead[places] = 0
        self._point(task, number, back)
        self._task = done.task.astype(np.int64)
        self._last = np.where(done.finished, _NONE, number[after])

    def add_episode(self, k: int, frames: Obs, steps: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append a whole episode of task `k`: `frames` [L + 1, *frame] of each key, and of its `steps` `action`,
        `reward` and `terminated` [L, …]. Rows that one step at a time brings are the same.
        """
        length = len(steps["action"]) + 1
        task = np.full(length, k)
        number = self._numbered(task)
        places, back = self._places(task, number), np.ones(length, np.int64)
        back[0] = 0
        for key in self._specs:
            self._data[f"{OBS}{key}"][places] = frames[key]
        for name in ("action", "reward", "terminated"):
            self._data[name][places[0]] = 0
            self._data[name][places[1:]] = steps[name]
        self._data["ended"][places] = np.arange(length) == length - 1
        self._data["back"][places] = back
        self._ahead[places] = 0
        self._point(task, number, back)

    @property
    def drawable(self) -> Bools:
        """[K] whether a task has a step that is whole."""
        for k in np.flatnonzero((self._known < self.oldest) & (self.counts > 0)).tolist():
            found = next(self._whole_rows(k), None)
            self._known[k] = _NONE if found is None else self._chains(np.array([k]), found[-1:])[0][0, 0]
        return self._known > _NONE

    def pick(self, counts: I64, rng: np.random.Generator) -> Batch:
        """`counts[k]` transitions of each task k: each whole step is as likely as the others. Errors: ValueError where
        there is none.
        """
        task = np.repeat(np.arange(self.num_tasks), counts)
        return self._batch(task, *self._drawn(task, rng))

    def whole(self, k: int) -> I64:
        """The numbers of the steps of task `k` that are whole: all that can be drawn of it, oldest first."""
        found = list(self._whole_rows(k))
        return np.concatenate(found[::-1]) if found else np.zeros(0, np.int64)

    def transitions(self, k: int, number: I64) -> Batch:
        """Those of task `k` that begin with these steps, which must be `whole`."""
        task = np.full(len(number), k)
        return self._batch(task, *self._chains(task, number)[:2])

    def put_back(self, block: Block) -> int:
        """As `Ring.put_back`; a row that points to one that never was is refused, too."""
        task, number = block.numbers
        back = np.asarray(block.arrays.get("back", _NONE), np.int64)
        if back.shape != number.shape or ((back < 0) | (back > number)).any():
            raise BadRowsError("rows.pointers")
        placed = super().put_back(block)
        alive = (number >= self.oldest[task]) & (number < self.counts[task])
        self._point(task[alive], number[alive], back[alive])
        return placed

    def state(self) -> dict[str, Any]:
        """JSON-able: where each environment stands."""
        return {"task": self._task.tolist(), "last": self._last.tolist()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on from there. Environments that are new begin an episode."""
        self._task, self._last = (np.array(saved[name], np.int64) for name in ("task", "last"))

    # --- how rows hang together --------------------------------------------------------------------------------------

    def _stand_at(self, count: int) -> None:
        """Of another number of environments the first go on."""
        kept = min(len(self._last), count)
        self._last = np.concatenate([self._last[:kept], np.full(count - kept, _NONE, np.int64)])
        self._task = np.concatenate([self._task[:kept], np.zeros(count - kept, np.int64)])

    def _goes_on(self, task: npt.NDArray[np.integer[Any]], obs: Obs) -> Bools:
        """[N] whether each acts in what its last row shows. Where that is overwritten, as the ring has no room for two
        rows of each environment, nobody can say; then nothing is drawn that would need it.
        """
        same: Bools = (self._last > _NONE) & (self._task == task)
        is_there = self._last >= self.oldest[task]
        places = self._places(task, np.maximum(self._last, 0))
        for key, spec in self._specs.items():
            kept = self._data[f"{OBS}{key}"][places]
            same &= ~is_there | (kept == newest(spec, obs[key])).reshape(len(same), -1).all(1)
        return same

    def _point(self, task: npt.NDArray[np.integer[Any]], number: I64, back: I64) -> None:
        """Rows before these, as far as they are there, learn where these lie."""
        points = (back > 0) & (number - back >= self.oldest[task])
        self._ahead[self._places(task, number - back)[points]] = back[points]

    def _chains(self, task: I64, number: I64) -> tuple[I64, I64, Bools]:
        """Of steps with these numbers: (the rows [B, R + n] of R frames up to the one that is acted in, the oldest
        first, and of the steps from there; how many of the latter count [B]; whether it is whole [B]).
        """
        back, ahead, ended = self._data["back"], self._ahead, self._data["ended"]
        chain = np.empty((len(number), self._reach + self._steps), np.int64)
        at = chain[:, self._reach] = number
        whole = back[self._places(task, number)] > 0
        for column in reversed(range(self._reach)):
            # Behind an overwritten row the numbers mean nothing, but they only fall.
            at = chain[:, column] = at - back[self._places(task, at)]
        whole &= at >= self.oldest[task]
        at, length = number, np.ones(len(number), np.int64)
        for column in range(self._reach + 1, self._reach + self._steps):
            places = self._places(task, at)
            step = ahead[places]
            whole &= (step > 0) | (ended[places] > 0)
            length += step > 0
            at = chain[:, column] = at + step
        return chain, length, whole

    def _whole_rows(self, k: int) -> Iterator[I64]:
        """The numbers of steps of task `k` that are whole, the newest block first."""
        end = int(self.counts[k])
        while end > self.oldest[k]:
            begin = max(int(self.oldest[k]), end - _BLOCK)
            number = np.arange(begin, end)
            found = number[self._chains(np.full(len(number), k), number)[2]]
            if found.size:
                yield found
            end = begin

    def _drawn(self, task: I64, rng: np.random.Generator) -> tuple[I64, I64]:
        """Of one whole step of each of the tasks [B] what `_chains` says."""
        low, high = self.oldest[task], self.counts[task]
        chain, length, whole = self._chains(task, number := rng.integers(low, high))
        for _ in range(_DRAWS):
            again = np.flatnonzero(~whole)
            if not again.size:
                break
            number[again] = rng.integers(low[again], high[again])
            chain[again], length[again], whole[again] = self._chains(task[again], number[again])
        for k in np.unique(task[~whole]).tolist():
            found = self.whole(k)
            if not found.size:
                raise ValueError("the replay ring has no complete step of a task: it is too short for its frames")
            again = np.flatnonzero(~whole & (task == k))
            number = rng.choice(found, len(again))
            chain[again], length[again], whole[again] = self._chains(task[again], number)
        return chain, length

    # --- what a batch is made of -------------------------------------------------------------------------------------

    def _batch(self, task: I64, chain: I64, length: I64) -> Batch:
        """Of what `_chains` says."""
        places = self._places(task[:, None], chain)
        first, last = places[:, self._reach], places[np.arange(len(task)), self._reach + length - 1]
        seen = {key: self._seen(key, places, length) for key in self._specs}
        return Batch(
            obs={key: before for key, (before, _) in seen.items()},
            action=self._data["action"][first],
            reward=self._summed(places, length),
            next_obs={key: after for key, (_, after) in seen.items()},
            terminated=self._data["terminated"][last].astype(np.float32),
            task=task,
            steps=length.astype(np.float32) if self._steps > 1 else None,
        )

    def _seen(self, key: str, places: I64, length: I64) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """What is seen of `key` before the steps, and behind them: [B, *shape] each."""
        spec, rows = self._specs[key], self._data[f"{OBS}{key}"]
        ages = np.arange(spec.stack)[::-1] * spec.stride
        if self._steps == 1 and spec.stride == 1:
            # Both have all frames but one in common: they are read once, and are views of that.
            frames = rows[places[:, self._reach - spec.stack : self._reach + 1]]
            before, after = frames[:, :-1], frames[:, 1:]
        else:
            columns = (self._reach - 1 + length)[:, None] - ages
            before, after = rows[places[:, self._reach - 1 - ages]], rows[np.take_along_axis(places, columns, 1)]
        return before.reshape(-1, *spec.shape), after.reshape(-1, *spec.shape)

    def _summed(self, places: I64, length: I64) -> F32:
        """The discounted rewards of each one's steps, [B]."""
        reward = self._data["reward"][places[:, self._reach :]]
        if self._steps == 1:
            return reward[:, 0]
        total = np.zeros(len(length))
        for step in range(self._steps):
            total += np.where(step < length, self._powers[step] * reward[:, step], 0)
        return total.astype(np.float32)
