"""What all settings are made of: kinds of numbers, their class, and errors that are a sentence at a place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from trainer.errors import FieldError

#: The type of errors that are a sentence of ours at a place of ours.
SENTENCE = "sentence"

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
PositiveInt = Annotated[int, Field(ge=1)]
CountInt = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class TrainingSettings(BaseModel):
    """Checked when it is made, and never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SettingFinding(NamedTuple):
    """What is the matter with the setting at `place`, which has this `value`: an error refuses it, a sentence is told,
    because it can hardly be meant. `loads`: it is refused to who begins, and a checkpoint that says so goes on.
    """

    what: FieldError | str
    place: tuple[int | str, ...] = ()
    value: Any = None
    loads: bool = False


def refused(place: tuple[int | str, ...], error: FieldError, value: Any) -> ValidationError:
    """What pydantic would raise for it."""
    return all_refused([SettingFinding(error, place, value)])


def all_refused(findings: Iterable[SettingFinding]) -> ValidationError:
    """What pydantic would raise for them."""
    details = [
        InitErrorDetails(type=PydanticCustomError(SENTENCE, "{error}", {"error": error}), loc=place, input=value)
        for error, place, value, _ in findings
    ]
    return ValidationError.from_exception_data("settings", details)
