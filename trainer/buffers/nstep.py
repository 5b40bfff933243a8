"""Rows of up to n steps: what was done, the discounted sum of the rewards that followed, and where that led.

Sutton 1988; in a replay as in Rainbow (Hessel et al. 2018, arXiv 1710.02298). They are summed up on the way into the
replay, so a row is one that any batch may hold: it says itself of how many steps it is. What is not whole yet is in
`state`.

Shapes: n steps, N environments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.buffers.rows import STEPS, Rows, rows_of
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, I32, Bools, Obs, Spaces, go_on_from, picked
from trainer.state import State

#: How observations are named among the arrays: those that were acted in, and those that are to be acted in next.
_OBS, _FOLLOWING = "obs.", "following."


class NStep:
    """The beginnings of rows, of each environment the last n at most.

    A row is whole after n steps, or where its episode ends before: an end leads nowhere (`terminated`), a cut leads to
    the observation that it left, after fewer steps.
    """

    def __init__(self, spaces: Spaces, steps: int, num_envs: int, gamma: float) -> None:
        self._n, self._at = steps, 0
        self._powers = gamma ** np.arange(steps, dtype=np.float64)
        #: [n, N, …] each. `STEPS`: how many each has summed up; 0: there is none.
        self._begun: dict[str, npt.NDArray[Any]] = {
            **{f"{_OBS}{key}": array for key, array in spaces.zeros(steps, num_envs).items()},
            "action": np.zeros((steps, num_envs, *spaces.action.shape), spaces.action.dtype),
            "task": np.zeros((steps, num_envs), np.int32),
            "reward": np.zeros((steps, num_envs)),
            STEPS: np.zeros((steps, num_envs), np.int64),
        }
        self._following = spaces.zeros(num_envs)

    def add(self, transition: Transition) -> list[tuple[I32, Rows]]:
        """One step of all environments; (tasks [B], rows) that are whole now, the oldest first.

        What an environment acted in must be what it was left in. Where it is not, because its episode could not be
        brought back, the rows of before are cut there.
        """
        done, begun, at = transition.step, self._begun, self._at
        found = []
        lost = begun[STEPS].any(0) & ~go_on_from(transition.obs, self._following)
        if lost.any():
            nothing = np.zeros(len(lost), np.bool_)
            found.append(self._taken(np.broadcast_to(lost, begun[STEPS].shape), self._following, nothing))
        for key, array in transition.obs.items():
            begun[f"{_OBS}{key}"][at] = array
        begun["action"][at], begun["task"][at] = transition.action, done.task
        begun["reward"][at], begun[STEPS][at] = 0, 0
        summing = begun[STEPS] > 0
        summing[at] = True
        begun["reward"] += np.where(summing, self._powers[begun[STEPS]] * done.reward, 0)
        begun[STEPS] += summing
        self._at = (at + 1) % self._n
        self._following = {key: array.copy() for key, array in done.obs.items()}
        whole = summing & (done.finished | (begun[STEPS] == self._n))
        if whole.any():
            found.append(self._taken(whole, done.next_obs, done.terminated))
        return found

    def state(self) -> State:
        """All that is begun, copied."""
        following = {f"{_FOLLOWING}{key}": array for key, array in self._following.items()}
        return State({name: array.copy() for name, array in {**self._begun, **following}.items()}, {"at": self._at})

    def load(self, state: State) -> None:
        """Go on from there. Environments that are new begin with nothing; what those began that are gone is lost."""
        self._at = int(state.numbers["at"])
        for name, array in self._begun.items():
            kept = np.asarray(state.tensors[name])[:, : array.shape[1]]
            array[:, : kept.shape[1]] = kept
        for key, array in self._following.items():
            kept = np.asarray(state.tensors[f"{_FOLLOWING}{key}"])[: len(array)]
            array[: len(kept)] = kept

    def _taken(self, whole: Bools, next_obs: Obs, terminated: Bools) -> tuple[I32, Rows]:
        """The rows [n, N] that are `whole`, which led to `next_obs` [N]; their places are free."""
        order = (self._at + np.arange(self._n)) % self._n
        age, env = np.nonzero(whole[order] & (self._begun[STEPS][order] > 0))
        place = order[age], env
        found = {name: array[place] for name, array in self._begun.items()}
        obs = {name.removeprefix(_OBS): array for name, array in found.items() if name.startswith(_OBS)}
        reward: F32 = found["reward"].astype(np.float32)
        rows = rows_of(obs, found["action"], reward, picked(next_obs, env), terminated[env])
        self._begun[STEPS][place] = 0
        return found["task"], {**rows, STEPS: found[STEPS].astype(np.uint8)}
