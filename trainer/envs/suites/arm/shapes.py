"""What the arm takes and shows, the numbers of its task, and its rewards. Units: metres, radians, seconds.

Rewards are of a step that ends with the hand so many metres `away` from the goal: pure, and in the order of operations
that the C stepper has (native/stepper.c).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer.config.suites import Arm
from trainer.envs.pictures import with_pictures
from trainer.envs.spaces import ArraySpec, Box, Spaces

JOINTS = 7
#: Radians a second, shoulder to wrist, and seconds of one step: how far an action of 1 moves a joint's target.
SPEEDS = (1.5, 1.5, 1.5, 1.5, 2.0, 2.0, 2.0)
STEP_S = 0.05
#: `mj_step` of 10 ms each.
SUBSTEPS = 5
#: A target runs ahead of its measured angle by no more: a blocked joint does not wind up.
LEAD = 0.3
#: Where the joints rest, and how far an episode's start may be off.
HOME = (0.0, 0.5, 0.0, 1.6, 0.0, 0.9, 0.0)
HOME_SPREAD = 0.1
#: Hand and goal, metres apart: solved; the gripper shuts; it opens again (two places, else it chatters).
SOLVED, SHUTS, OPENS = 0.05, 0.15, 0.17
#: A finger's place, open and shut.
OPEN, SHUT = 0.04, 0.0

#: q 7, its speeds 7, hand 3, goal 3, goal - hand 3, the gripper's opening in [0, 1], whether it is to be shut.
OBSERVATION = 25
#: Of these what the arm feels of itself: q, its speeds, the hand, the opening. Nothing tells of the goal.
OWN = (*range(2 * JOINTS + 3), OBSERVATION - 2)
#: Distance, then q: what the arm's first environment showed.
LEGACY = 1 + JOINTS


def spaces(settings: Arm) -> Spaces:
    """Those of `settings`."""
    state = ArraySpec((LEGACY if settings.observation == "legacy" else OBSERVATION,))
    return Spaces(with_pictures(settings, state, len(OWN)), Box(JOINTS), settings.tasks, settings.horizon)


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
