"""What a policy is shown where it sees pictures: the spaces of `PictureSettings`."""

from __future__ import annotations

from trainer.config.pictures import PictureSettings
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, ArraySpec

#: Red, green, blue.
COLOURS = 3


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


def picture_spec(settings: PictureSettings, channels: int, height: int = 0, width: int = 0) -> ArraySpec:
    """Of pictures with so many channels; `height` and `width` where they are not `image_size`."""
    stack = settings.frame_stack
    size = (height or settings.image_size, width or settings.image_size)
    shape = (stack, channels, *size) if settings.observation == "clips" else (stack * channels, *size)
    return ArraySpec(shape, "uint8", 0.0, 255.0, stack, settings.frame_stride)
