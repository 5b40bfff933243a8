"""What a policy is shown where it sees pictures: the spaces of `PictureSettings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from trainer.config.pictures import PictureSettings
from trainer.config.settings import EnvSettings
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, ArraySpec, Obs
from trainer.errors import ConfigError
from trainer.machine import drawing

#: Red, green, blue.
COLOURS = 3


def ready_to_draw(settings: EnvSettings) -> str:
    """Make this process, and those that it starts, draw what policies see; what does: OpenGL's renderer and version.

    Empty where nothing is drawn, or only by an environment's own means. To be called before mujoco is loaded. Errors:
    ConfigError where MuJoCo must draw and cannot.
    """
    if settings.draws == "no":
        return ""
    try:
        return drawing.prepare_for_policies().driver
    except ConfigError:
        if settings.draws == "mujoco":
            raise
        return ""  # not all that draw themselves are MuJoCo's


def with_pictures(settings: PictureSettings, state: ArraySpec, own: int) -> dict[str, ArraySpec]:
    """What is seen where the whole state is `state`, of which `own` numbers are what the robot feels of itself."""
    if not settings.has_pictures:
        return {STATE: state}
    seen = {IMAGE: picture_spec(settings, COLOURS * len(settings.seen_by))}
    if settings.observation != "cameras":
        seen[STATE] = ArraySpec((own,), state.dtype, state.low, state.high)
    if settings.critic_sees == "state":
        seen[PRIVILEGED] = ArraySpec(state.shape, state.dtype, state.low, state.high, privileged=True)
    return seen


def seen_with(settings: PictureSettings, picture: npt.NDArray[Any], state: npt.NDArray[Any], own: Sequence[int]) -> Obs:
    """One frame of `with_pictures`: `own` are the places in `state` of what the robot feels of itself."""
    seen = {IMAGE: picture}
    if settings.observation != "cameras":
        seen[STATE] = state[list(own)]
    if settings.critic_sees == "state":
        seen[PRIVILEGED] = state
    return seen


def picture_spec(settings: PictureSettings, channels: int, height: int = 0, width: int = 0) -> ArraySpec:
    """Of pictures with so many channels; `height` and `width` where they are not `image_size` a side."""
    stack = settings.frame_stack
    size = (height or settings.image_size, width or settings.image_size)
    shape = (stack, channels, *size) if settings.observation == "clips" else (stack * channels, *size)
    return ArraySpec(shape, "uint8", 0.0, 255.0, stack, settings.frame_stride)
