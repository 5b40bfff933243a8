"""Whether environments step so quickly that workers, or threads, would cost more than they bring.

A foreign environment is timed in a worker of its own: one that hangs can be ended there, and is told.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

import numpy as np

from trainer.envs import channel, workers
from trainer.envs.spaces import drawn_actions
from trainer.envs.step import EnvError
from trainer.envs.suite import BEGIN_S, Suite, SuiteRef

#: A step of all environments below this is not worth it: waking two workers, and waiting for both, takes a third.
WORTH_WORKERS_S = 1e-3
#: Steps that are timed, after as many that are not.
_STEPS = 8
#: A step that takes so long, and is not the first, settles it.
_SLOW_S = 0.1
#: What takes as long as beginning may, before and in the first reset; then a step's time is enough.
_MADE, _BEGUN = "being made", "beginning its first episode"


def is_quick(suite: SuiteRef, num_envs: int) -> bool:
    """Whether a step of `num_envs` takes less than it takes to share it out.

    It decides where environments are stepped, and so changes no number of a training. Errors: EnvError where one hangs.
    """
    known = suite.settings.step_s
    return num_envs * (_measured(suite) if known is None else known) < WORTH_WORKERS_S


def step_seconds(opened: Suite, tell: Callable[[str], None]) -> float:
    """Of one step, with random actions; infinite where something goes wrong, which is told in its training.

    `tell` hears what comes next.
    """
    rng, seconds = np.random.default_rng(0), []
    try:
        env = opened.make(0)
    except Exception:  # noqa: BLE001 - somebody else's code
        return inf
    try:
        tell(_BEGUN)
        env.reset(0, 0)
        for number, action in enumerate(drawn_actions(rng, opened.spaces.action, 2 * _STEPS), 1):
            tell(f"making step {number}")
            began = time.perf_counter()
            outcome = env.step(action)
            seconds.append(time.perf_counter() - began)
            if outcome.terminated or outcome.truncated:
                tell(f"beginning an episode after step {number}")
                env.reset(0, 0)
            if len(seconds) > 1 and seconds[-1] > _SLOW_S:
                return inf
    except Exception:  # noqa: BLE001 - somebody else's code
        return inf
    finally:
        with suppress(Exception):
            env.close()
    return statistics.median(seconds[_STEPS:])


def _measured(suite: SuiteRef) -> float:
    """`step_seconds` of an environment in a worker; infinite where none can be started. Errors: EnvError."""
    try:
        process, worker = workers.spawn_worker()
    except OSError:
        return inf
    doing = _MADE
    try:
        worker.send(channel.TIME, suite.as_json(), limit_s=_limit_s(doing))
        while (answer := worker.receive(_limit_s(doing))).op == channel.DOING:
            doing = str(answer.meta)
        return float(answer.meta) if answer.op == channel.DONE else inf
    except EOFError:
        return inf  # it died
    except TimeoutError:
        workers.dismiss(process)
        raise EnvError("env.silent", task=suite.settings.tasks[0], seconds=_limit_s(doing), doing=doing) from None
    finally:
        worker.close()
        workers.end(process)


def _limit_s(doing: str) -> float:
    return BEGIN_S if doing in {_MADE, _BEGUN} else workers.HUNG_S
