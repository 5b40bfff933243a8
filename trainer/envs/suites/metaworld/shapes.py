"""What Meta-World v3 gives and takes, with the goal visible."""

from __future__ import annotations

from trainer.envs.spaces import STATE, ArraySpec, Box, Spaces

#: Two stacked frames of 18 numbers, then the goal's position.
OBS_DIM = 39
#: The hand's displacement in x, y, z and the gripper, each in [-1, 1].
ACT_DIM = 4


def spaces(tasks: tuple[str, ...], horizon: int) -> Spaces:
    """Those of `tasks`."""
    return Spaces({STATE: ArraySpec((OBS_DIM,))}, Box(ACT_DIM), tasks, horizon)
