"""Both paths side by side: whether a task steps natively as it does in Python, to the last bit."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
from metaworld.policies import ENV_POLICY_MAP

from trainer.config.suites import Metaworld
from trainer.config.tasknames import MAX_HORIZON
from trainer.envs.native import verdicts
from trainer.envs.shared import SharedBuffers
from trainer.envs.suite import EpisodeStats, StepFaultError
from trainer.envs.suites.metaworld.env import MetaworldEnv, TaskEnv
from trainer.envs.suites.metaworld.goals import goal_table
from trainer.envs.suites.metaworld.native.library import StepperLibrary
from trainer.envs.suites.metaworld.native.rows import NativeRows
from trainer.envs.suites.metaworld.shapes import spaces

#: Of each of two episodes; enough for the scripted policies to reach the object.
_STEPS = 80
#: Every so many steps one of them is random.
_TURN = 4
_SEED = 20_000

_log = logging.getLogger(__name__)


def steps_alike(stepper: StepperLibrary, task: str) -> bool:
    """Two episodes of random and of upstream's scripted actions, side by side on both paths."""
    policies: dict[str, Any] = ENV_POLICY_MAP
    policy, rng, goals = policies[task](), np.random.default_rng(_SEED), goal_table(task, _SEED)
    buffers = SharedBuffers(spaces(Metaworld(tasks=(task,))), 1)
    rows = NativeRows(stepper, 1, buffers.fields, 1, MAX_HORIZON)
    binding, ours, theirs = rows.bind(0, 0), TaskEnv(task), TaskEnv(task)
    try:
        for goal in range(2):
            ours.reset(goals[goal])
            observation = theirs.reset(goals[goal])
            binding.take(MetaworldEnv(ours, goals), 0, EpisodeStats())
            for step in range(_STEPS):
                with warnings.catch_warnings(action="ignore"):  # upstream's policies say that they are clipped
                    scripted = np.clip(policy.get_action(observation), -1, 1)
                action = (scripted if step % _TURN else rng.uniform(-1.2, 1.2, 4)).astype(np.float32)
                buffers.fields["actions"][0] = action
                rows.step()
                observation, reward, _, success = theirs.step(action)
                row = rows.rows[0]
                seen = row["last"].tobytes(), row["reward"].tobytes(), bool(buffers.fields["success"][0])
                if seen != (observation.tobytes(), np.float64(reward).tobytes(), success):
                    return False
            binding.read()
            if not verdicts.are_same(ours.snapshot(), theirs.snapshot()):
                return False
    except (StepFaultError, ValueError, AssertionError) as error:
        _log.warning("the check of %s failed: %s", task, error)
        return False
    finally:
        rows.close()
        buffers.close()
        ours.close()
        theirs.close()
    return True
