"""Settings of suites whose policies may see pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from anchorleg.words import did_you_mean
from trainer.config.fields import SettingFinding, refused
from trainer.config.network import RGB
from trainer.config.settings import EnvSettings
from trainer.errors import FieldError

Observation = Literal["state", "cameras", "both", "clips"]
ImageSize = Annotated[int, Field(ge=16, le=1024)]
StackSize = Annotated[int, Field(ge=1, le=64)]
#: The observations that have pictures.
SEEING = ("cameras", "both", "clips")
#: A clip where nobody says how long: what published video encoders are given at least, over 0.4 s of Meta-World.
CLIP_FRAMES, CLIP_STRIDE = 8, 4
#: Of a process that draws: Mesa, with LLVM [measured: 84 MiB].
_OPENGL_BYTES = 80 * 2**20
#: What there is to say of pictures, and is refused where there are none.
OF_PICTURES = ("cameras", "image_size", "frame_stack", "frame_stride", "randomize_view", "critic_sees")


class PictureSettings(EnvSettings):
    """Of a suite that can be seen through cameras: under the key `image`, uint8, all cameras' channels behind each
    other; under `state` what the robot feels of itself, and nothing of a goal; under `privileged` the whole state.
    """

    KNOWN_CAMERAS: ClassVar[tuple[str, ...]] = ()
    """All that there are; none: they are not known on a login node."""
    USUAL_CAMERAS: ClassVar[tuple[str, ...]] = ()
    """Those where nobody names some."""

    REFUSED_WITH_STATE: ClassVar[tuple[str, ...]] = OF_PICTURES
    """What there is nothing to say of where the policy sees the state."""
    TASK_BYTES: ClassVar[int] = 0
    """What a process uploads to draw one task: meshes and textures [measured]."""
    DRAWN_STEP_S: ClassVar[float | None] = None
    """About what a step takes that is drawn by one camera, without a GPU; bench/rendering.py."""

    observation: str = Field("state", description="Input of the policy: state, cameras, both or clips.")
    cameras: tuple[str, ...] = Field((), description="Cameras to see; default: the suite's.")
    image_size: ImageSize = Field(64, description="Pixels per side of each picture.")
    frame_stack: StackSize = Field(1, description=f"Number of last frames to see; default: 1, for clips {CLIP_FRAMES}.")
    frame_stride: StackSize = Field(1, description=f"Steps between these frames; default: 1, for clips {CLIP_STRIDE}.")
    randomize_view: bool = Field(False, description="Randomise lights and camera positions in each episode.")
    critic_sees: Literal["observation", "state"] = Field(
        "observation",
        description="Input of critics: the policy's observation, or the full state with the goal; encoders then "
        "learn from the policy's loss.",
    )

    @property
    def has_pictures(self) -> bool:
        """Whether the policy sees any."""
        return self.observation in SEEING

    @property
    def paid_by(self) -> dict[str, Any]:
        seen = PictureSettings.model_fields.keys() - EnvSettings.model_fields.keys()
        return {name: value for name, value in super().paid_by.items() if name not in seen}

    @property
    def draws(self) -> Literal["no", "mujoco", "itself"]:
        return "mujoco" if self.has_pictures else "no"

    @property
    def drawing_bytes(self) -> int:
        return _OPENGL_BYTES + len(self.tasks) * self.TASK_BYTES if self.draws == "mujoco" else 0

    @property
    def step_s(self) -> float | None:
        if not self.has_pictures:
            return self.STEP_S
        return None if self.DRAWN_STEP_S is None else self.DRAWN_STEP_S * len(self.seen_by)

    @property
    def sees(self) -> Literal["pictures", "none", "unknown"]:
        if self.name not in {"metaworld", "arm"}:
            return "unknown"
        return "pictures" if self.has_pictures else "none"

    @property
    def picture_shape(self) -> tuple[int, ...] | None:
        if not self.has_pictures or not self.seen_by:
            return None
        channels, frame = RGB * len(self.seen_by), (self.image_size, self.image_size)
        if self.observation == "clips":
            return (self.frame_stack, channels, *frame)
        return (self.frame_stack * channels, *frame)

    @property
    def frames_seen(self) -> int:
        return self.frame_reach if self.has_pictures else 0

    def findings(self) -> Iterator[SettingFinding]:
        if self.frame_stack == 1 and self.frame_stride > 1:
            yield SettingFinding("it needs several frames, and frame_stack is 1", ("frame_stride",))

    @property
    def draws_views(self) -> bool:
        return self.randomize_view

    @property
    def seen_by(self) -> tuple[str, ...]:
        """The cameras."""
        return self.cameras or self.USUAL_CAMERAS

    @property
    def frame_reach(self) -> int:
        """Frames from the oldest to the newest that is seen, both counted."""
        return (self.frame_stack - 1) * self.frame_stride + 1

    def longer_than_an_episode(self, steps: int, by: str = "horizon") -> FieldError | None:
        """Why an episode that `by` gives `steps` shows not all frames that are asked for; None: it does."""
        if self.frame_reach <= steps:
            return None
        return FieldError(
            "frames.longer-than-episode",
            frame_stack=self.frame_stack,
            frame_stride=self.frame_stride,
            reach=self.frame_reach,
            steps=steps,
            limit=by,
        )

    @model_validator(mode="before")
    @classmethod
    def _with_the_usual_clip(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("observation") == "clips":
            return {"frame_stack": CLIP_FRAMES, "frame_stride": CLIP_STRIDE, **value}
        return value

    @model_validator(mode="after")
    def _pictures_can_be_taken(self) -> PictureSettings:
        for name in () if self.has_pictures else self.REFUSED_WITH_STATE:
            if getattr(self, name) != type(self).model_fields[name].get_default():
                error = FieldError("env.setting-of-pictures", name=name)
                raise refused((name,), error, getattr(self, name))
        for name in self.cameras if self.KNOWN_CAMERAS else ():
            if name not in self.KNOWN_CAMERAS:
                error = FieldError("camera.unknown", camera=name, hint=did_you_mean(name, self.KNOWN_CAMERAS))
                raise refused(("cameras",), error, name)
        if len(set(self.cameras)) < len(self.cameras):
            raise refused(("cameras",), FieldError("camera.named-twice"), self.cameras)
        if (why := self.longer_than_an_episode(self.horizon)) is not None:
            raise refused(("frame_stack",), why, self.frame_stack)
        if self.observation == "clips" and self.frame_stack == 1:
            raise refused(("frame_stack",), FieldError("frames.clip-of-one"), 1)
        return self
