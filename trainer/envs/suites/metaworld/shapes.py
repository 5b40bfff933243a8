"""What Meta-World v3 gives and takes, with the goal visible."""

from __future__ import annotations

from trainer.config.suites import Metaworld
from trainer.envs.pictures import with_pictures
from trainer.envs.spaces import ArraySpec, Box, Spaces

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
