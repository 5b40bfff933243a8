"""What the arm takes and shows, and the numbers of its task. Shapes, units: metres, radians, seconds."""

from __future__ import annotations

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
