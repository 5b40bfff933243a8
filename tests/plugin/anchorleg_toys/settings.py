"""Settings of the suite and the algorithm: pydantic alone, so that a login node needs no torch and numpy."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from trainer.config.fields import Positive, PositiveInt
from trainer.config.pictures import Observation, PictureSettings
from trainer.config.settings import AlgorithmSettings


class PointsSettings(PictureSettings):
    """Point masses on a line."""

    KNOWN_CAMERAS: ClassVar[tuple[str, ...]] = ("above", "below", "beside")
    USUAL_CAMERAS: ClassVar[tuple[str, ...]] = ("above",)
    observation: Observation = Field("state", description=PictureSettings.model_fields["observation"].description)

    tasks: tuple[str, ...] = Field(("left", "middle", "right"), description="A goal each, from left to right.")
    #: Far enough for the mass to reach any goal from anywhere.
    horizon: PositiveInt = Field(20, description="Steps after which an episode is cut.")
    pushes: Literal["any", "three"] = Field("any", description="any real number, or one of left, none and right.")


class DriftSettings(AlgorithmSettings):
    """A linear policy that drifts to what was rewarded."""

    step_size: Positive = Field(0.1, description="How far an update moves the policy.")
