"""What Meta-World v3 gives and takes, with the goal visible, and what honest experience of it obeys (`BOUNDS`).

Measured on all fifty tasks with random, scripted, noisy scripted and held extreme actions (500 episodes, metaworld
3.1.1, mujoco 3.3.0): rewards lay in [0, 10.0], observations in [-1.8, 1.9], the goal never moved, each observation's
older frame was bit for bit the frame before, and what a task has no number for was 0.
"""

from __future__ import annotations

import numpy as np

from trainer.config.suites import Metaworld
from trainer.envs.pictures import with_pictures
from trainer.envs.spaces import F32, ArraySpec, Box, Spaces
from trainer.envs.suite import Bounds

#: Two stacked frames of 18 numbers, then the goal's position.
OBS_DIM = 39
#: The hand's displacement in x, y, z and the gripper, each in [-1, 1].
ACT_DIM = 4

#: Of the observation what the robot feels of itself: where the hand is, and how far the gripper is open.
OWN = tuple(range(4))


def spaces(settings: Metaworld) -> Spaces:
    """Those of `settings`."""
    seen = with_pictures(settings, ArraySpec((OBS_DIM,)), len(OWN))
    return Spaces(seen, Box(ACT_DIM), settings.tasks, settings.horizon)


#: Columns of an observation: the frame now, the frame before, the goal.
_FRAME, _GOAL = 18, 36
#: Where the padding of a frame begins: behind one object, but for tasks with two.
_PADDING = 11
_WITH_TWO = {"hammer-v3": 15, "stick-push-v3": 14, "stick-pull-v3": 14}


def gap(obs: F32, task: str) -> str | None:
    """An observation holds the frame before it; so rows that were cut out, swapped or made up do not join."""
    if obs[:, _WITH_TWO.get(task, _PADDING) : _FRAME].any():
        return f"an unused number of {task} is not 0"
    broken = np.flatnonzero((obs[1:, _FRAME:_GOAL] != obs[:-1, :_FRAME]).any(axis=1))
    if broken.size:
        return f"the observation after step {broken[0]} does not hold the frame before it"
    if (obs[1:, _GOAL:] != obs[0, _GOAL:]).any():
        return "the goal moves within the episode"
    return None


BOUNDS = Bounds(
    # Metres and quaternion parts; five times the farthest that was measured (an object that is flung off the table).
    obs=10.0,
    # Reward version v2 is in [0, 10]; a hundredth for its arithmetic in single precision.
    reward=(-0.01, 10.01),
    terminates=False,
    gap=gap,
)
