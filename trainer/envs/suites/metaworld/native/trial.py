"""Both paths side by side: whether a task steps natively as it does in Python, to the last bit."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
from metaworld.policies import ENV_POLICY_MAP

from trainer.envs.shared import Board
from trainer.envs.stats import Books
from trainer.envs.step import VectorSpec
from trainer.envs.suites.metaworld.env import EnvState, TaskEnv
from trainer.envs.suites.metaworld.goals import goal_table
from trainer.envs.suites.metaworld.native.library import Stepper
from trainer.envs.suites.metaworld.native.rows import RowFaultError, Rows, Seat
from trainer.tasknames import MAX_HORIZON

#: Of each of two episodes; enough for the scripted policies to reach the object.
_STEPS = 80
#: Every so many steps one of them is random.
_TURN = 4
_SEED = 20_000

_log = logging.getLogger(__name__)


def steps_alike(stepper: Stepper, task: str) -> bool:
    """Two episodes of random and of upstream's scripted actions, side by side on both paths."""
    policies: dict[str, Any] = ENV_POLICY_MAP
    policy, rng, goals = policies[task](), np.random.default_rng(_SEED), goal_table(task, _SEED)
    board = Board(1)
    rows = Rows(stepper, VectorSpec((task,), (goals,), 1, _SEED, MAX_HORIZON), 1, board.fields, 1)
    seat, ours, theirs = Seat(rows, 0, 0), TaskEnv(task), TaskEnv(task)
    try:
        for goal in range(2):
            ours.reset(goals[goal])
            observation = theirs.reset(goals[goal])
            seat.take(ours, 0, Books())
            for step in range(_STEPS):
                with warnings.catch_warnings(action="ignore"):  # upstream's policies say that they are clipped
                    scripted = np.clip(policy.get_action(observation), -1, 1)
                action = (scripted if step % _TURN else rng.uniform(-1.2, 1.2, 4)).astype(np.float32)
                board.fields["actions"][0] = action
                rows.step()
                observation, reward, _, success = theirs.step(action)
                row = rows.rows[0]
                seen = row["last"].tobytes(), row["reward"].tobytes(), bool(board.fields["success"][0])
                if seen != (observation.tobytes(), np.float64(reward).tobytes(), success):
                    return False
            seat.read()
            if not _same(ours.snapshot(), theirs.snapshot()):
                return False
    except (RowFaultError, ValueError, AssertionError) as error:
        _log.warning("the check of %s failed: %s", task, error)
        return False
    finally:
        rows.close()
        board.close()
        ours.close()
        theirs.close()
    return True


def _same(one: EnvState, other: EnvState) -> bool:
    arrays = [{name: array.tobytes() for name, array in state.arrays.items()} for state in (one, other)]
    return one.meta == other.meta and arrays[0] == arrays[1]
