"""Whether environments step so quickly that workers would cost more than they bring."""

from __future__ import annotations

import statistics
import time

import numpy as np

from trainer.envs.spaces import drawn_actions
from trainer.envs.suite import Suite

#: A step of all environments below this is not worth it: waking two workers, and waiting for both, takes a third.
WORTH_WORKERS_S = 1e-3
#: Steps that are timed, after as many that are not.
_STEPS = 8


def is_quick(suite: Suite, num_envs: int) -> bool:
    """By a few steps of one environment of its first task, with random actions. False where C steps them, on threads,
    and where something goes wrong, which is told when it is trained on.

    It decides where environments are stepped, and so changes no number of a training.
    """
    if suite.stepped_natively("auto"):
        return False
    rng, seconds = np.random.default_rng(0), []
    env = suite.make(0)
    try:
        env.reset(0, 0)
        for action in drawn_actions(rng, suite.spaces.action, 2 * _STEPS):
            began = time.perf_counter()
            outcome = env.step(action)
            seconds.append(time.perf_counter() - began)
            if outcome.terminated or outcome.truncated:
                env.reset(0, 0)
    except Exception:  # noqa: BLE001 - somebody else's code
        return False
    finally:
        env.close()
    return num_envs * statistics.median(seconds[_STEPS:]) < WORTH_WORKERS_S
