"""What a step is worth, with the hand so many metres `away` from the goal.

Pure, and in the order of operations that the C stepper has (native/stepper.c).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer.envs.suites.arm.shapes import SOLVED

#: Dense: what an action of length 1 costs.
EFFORT = 0.01
#: tanh: a distance of 1 / STEEPNESS metres costs three quarters.
STEEPNESS = 5.0


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Between two places, metres. Not NumPy's norm: its last bit is the processor's."""
    x, y, z = one[0] - other[0], one[1] - other[1], one[2] - other[2]
    return math.sqrt(x * x + y * y + z * z)


def effort_of(action: Sequence[float]) -> float:
    """The square of its length."""
    total = 0.0
    for number in action:
        total += number * number
    return total


def dense(away: float, effort: float) -> float:
    """The way that is left, a point within 5 cm, and a little for `effort`, the square of the action's length."""
    return -away + (1.0 if away < SOLVED else 0.0) - EFFORT * effort


def tanh(away: float, effort: float) -> float:  # noqa: ARG001 - one shape for all
    """1 at the goal, 0 far from it."""
    return 1.0 - math.tanh(STEEPNESS * away)


def sparse(away: float, effort: float) -> float:  # noqa: ARG001 - as above
    """0 within 5 cm, else -1."""
    return 0.0 if away < SOLVED else -1.0


REWARDS = {"dense": dense, "tanh": tanh, "sparse": sparse}
