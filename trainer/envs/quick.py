"""Whether environments step so quickly that workers, or threads, would cost more than they bring."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from math import inf

import numpy as np

from trainer.envs.spaces import drawn_actions
from trainer.envs.suite import SuiteRef

#: A step of all environments below this is not worth it: waking two workers, and waiting for both, takes a third.
WORTH_WORKERS_S = 1e-3
#: Steps that are timed, after as many that are not.
_STEPS = 8
#: A step that takes so long, and is not the first, settles it.
_SLOW_S = 0.1


def is_quick(suite: SuiteRef, num_envs: int) -> bool:
    """Whether a step of `num_envs` takes less than it takes to share it out.

    It decides where environments are stepped, and so changes no number of a training.
    """
    known = suite.settings.STEP_S
    return num_envs * (_measured(suite) if known is None else known) < WORTH_WORKERS_S


def _measured(suite: SuiteRef) -> float:
    """Seconds of one step, with random actions; infinite where something goes wrong, which is told in its training."""
    opened, rng, seconds = suite.open(), np.random.default_rng(0), []
    try:
        env = opened.make(0)
    except Exception:  # noqa: BLE001 - somebody else's code
        return inf
    try:
        env.reset(0, 0)
        for action in drawn_actions(rng, opened.spaces.action, 2 * _STEPS):
            began = time.perf_counter()
            outcome = env.step(action)
            seconds.append(time.perf_counter() - began)
            if outcome.terminated or outcome.truncated:
                env.reset(0, 0)
            if len(seconds) > 1 and seconds[-1] > _SLOW_S:
                return inf
    except Exception:  # noqa: BLE001 - somebody else's code
        return inf
    finally:
        with suppress(Exception):
            env.close()
    return statistics.median(seconds[_STEPS:])
