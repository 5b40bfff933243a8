"""Environments shared by the slots of one process, and the resets they have already done.

The first instance of a task of Meta-World costs 0.09 s to build, another one far less, and each about 20 MiB; a real
reset costs 4 ms. Both can be shared without changing a bit, because a reset's outcome depends on (task, start, seed)
alone.
"""

from __future__ import annotations

import logging

from trainer.envs.spaces import Obs
from trainer.envs.suite import Env, Suite
from trainer.state import State

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
