"""The training section as a user writes it: any part of a training, the rest comes from its preset."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from inspect import cleandoc
from typing import Any, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from anchorleg.words import did_you_mean
from trainer.config.fields import SENTENCE, TrainingSettings, refused
from trainer.config.find import files_of, settings_of
from trainer.config.network import Network
from trainer.config.settings import AlgorithmSettings, EnvSettings, GroupSettings, OffPolicySettings, OnPolicySettings
from trainer.config.training import NAMED, SECTIONS, Training, in_sections, merged
from trainer.errors import FieldError

DEFAULT_PRESET = "guide"
_TABLES: dict[str, dict[str, Any]] = tomllib.loads(files(__package__).joinpath("presets.toml").read_text("utf-8"))
_SHARED = _TABLES.pop("shared")
_ABOUT: dict[str, dict[str, str]] = {
    name: {key: table.pop(key, "") for key in ("about", "result")} for name, table in _TABLES.items()
}
_BY_TASK: dict[str, dict[str, int]] = {name: table.pop("by_task", {}) for name, table in _TABLES.items()}


def _whole(table: dict[str, Any]) -> dict[str, Any]:
    """With the tables that it shares with others, below its own values."""
    parts = [_SHARED[name] for name in table.pop("shares", ())]
    return {name: value for part in (*parts, table) for name, value in part.items()}


#: Preset → what differs from the guide, but for what is in `by_task`.
PRESETS = {name: _whole(table) for name, table in _TABLES.items()}


def by_task(preset: str, tasks: int) -> dict[str, Any]:
    """The values of `preset` that depend on how many `tasks` there are."""
    if not (values := dict(_BY_TASK.get(preset, {}))):
        return {}
    updates = values.pop("updates_a_round")
    return {name: value * tasks for name, value in values.items()} | {"updates_per_step": updates / tasks}


#: What is trained where nobody says otherwise, and what presets are for.
_USUAL = {"env": "metaworld", "algorithm": "mtsac"}
#: What there is to say of demonstrations where they are a second buffer.
_OF_DEMOS = {name for name in OffPolicySettings.model_fields if name.startswith("demos")}
#: The context of validating what was begun: whether it resolves was asked then, and takes the packages that it names.
BEGUN = object()


class TrainingSection(BaseModel):
    """The training. The preset fills in omitted fields. A field whose name occurs in only one section may stand
    directly under `training`: `"batch_size": 256`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    preset: str = Field(DEFAULT_PRESET, description="The named set of values for omitted fields; see Presets.")

    @field_validator("preset")
    @classmethod
    def _preset_is_known(cls, value: str) -> str:
        if value not in PRESETS:
            raise FieldError("preset.unknown", name=value, hint=did_you_mean(value, PRESETS))
        return value

    @model_validator(mode="after")
    def _it_resolves(self, info: ValidationInfo) -> Self:
        # The default is right by a test. Not asking saves programs of one's own the import of every setting.
        if info.context is not BEGUN and (self.preset != DEFAULT_PRESET or self.model_extra):
            resolve(self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """That of a whole training."""
        whole = handler.resolve_ref_schema(handler(Training.__pydantic_core_schema__))
        about = cls.model_fields["preset"].description
        preset = {**whole["properties"]["preset"], "default": DEFAULT_PRESET, "description": about}
        properties = {**whole["properties"], "preset": preset}
        for section, kind in NAMED.items():
            own = [handler(settings_of(kind, name).__pydantic_core_schema__) for name in files_of(kind)]
            by_name = {"type": "string", "description": "Its name alone."}
            properties[section] = {"anyOf": [*own, by_name], "description": properties[section]["description"]}
        return {
            "type": "object",
            "title": cls.__name__,
            "description": cleandoc(cls.__doc__ or ""),
            "properties": properties,
        }

    @property
    def seed(self) -> int:
        """As it is written, of whatever program."""
        return int(self.written.get("seed", 0))

    @property
    def written(self) -> dict[str, Any]:
        """What is not left out, as it was written."""
        return {name: value for name, value in self.model_dump(exclude_unset=True).items() if value is not None}

    def over(self, values: Mapping[str, Any]) -> TrainingSection:
        """With `values` as if they were written in place of what is there; not resolved. Errors: ValidationError where
        there is no such preset, suite or algorithm, or where a short name is of several sections.
        """
        below = self.written
        for section in NAMED:
            if (name := _name_in(values.get(section))) is not None:
                below[section] = _named(below.get(section), name)
        preset = PRESETS.get(str(values.get("preset", self.preset)), {})
        classes = _classes(preset, below, values)
        both = merged(in_sections(below, classes), in_sections(values, classes))
        return TrainingSection.model_validate(both, context=BEGUN)


def put(section: dict[str, Any], dotted: str, value: Any) -> None:
    """Set one field of what a user wrote: by its short name (`actor_hidden`, `encoder.arch`), or behind its section's
    (`network.actor_hidden`, `network.encoder.arch`). What else stands on the way stays, and behind the name alone of
    whom a section is for already.
    """
    *folders, name = dotted.split(".")
    if folders and folders[0] not in section:  # a short name of what stands in its section
        folders = [*[outer for outer in SECTIONS if folders[0] in _opened(section.get(outer))][:1], *folders]
    if folders and folders[0] in SECTIONS:
        if len(folders) == 1:
            _drop(section, name)
        elif folders[1] in section:  # the short name is stronger: it moves to where the rest is written
            section[folders[0]] = {**_opened(section.get(folders[0])), folders[1]: section.pop(folders[1])}
    at = section
    for folder in folders:
        at[folder] = _opened(at.get(folder))
        at = at[folder]
    if not folders and name in NAMED and isinstance(value, str):
        value = _named(section.get(name), value)
    _drop(at, name)
    at[name] = value


def named_first(settings: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """(dotted name, value), in the order in which `put` loses none of them: whom a section is for comes before what is
    said of it. A whole section stays in its place.
    """
    return sorted(settings, key=lambda it: it[0].removeprefix("training.") not in NAMED or not isinstance(it[1], str))


def _named(section: Any, name: str) -> Any:
    """`section` for the suite or algorithm `name`: as it is, unless it names another one."""
    if isinstance(section, Mapping) and section.get("name", name) == name:
        return {**section, "name": name}
    return name


def _opened(value: Any) -> dict[str, Any]:
    """A copy, to write into; a name alone is an object with that name."""
    return {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}


def _drop(values: dict[str, Any], name: str) -> None:
    """Without it; tasks and a benchmark replace each other."""
    for gone in {"tasks", "benchmark"} if name in {"tasks", "benchmark"} else {name}:
        values.pop(gone, None)


def trained(values: Mapping[str, Any]) -> Training:
    """The training that `values`, a section or a dump of an older version or of this one, are of: it was begun, so what
    it asks for without need is no mistake. Errors: ValidationError.
    """
    return resolve(TrainingSection.model_validate(values, context=BEGUN), begun=True)


def resolve(section: TrainingSection, *, begun: bool = False) -> Training:
    """The preset's values, overlaid by the user's. `begun`: what nobody may ask for anew is no mistake (`trained`).
    Errors: ValidationError, at the places where they were written.
    """
    written, preset = section.written, PRESETS[section.preset]
    presets_own = _classes(preset)
    classes = _classes(preset, written)
    above = in_sections(written, classes)
    below = _of_preset(preset, presets_own, classes)
    tasks = _count(merged(below, above).get("env", {}), classes["env"])
    value: dict[str, Any] = {name: {"name": usual} for name, usual in _USUAL.items()}
    algorithm = cast("type[AlgorithmSettings]", classes["algorithm"])
    for more in (
        {"network": dict(algorithm.NETWORK)},
        below,
        _of_preset(by_task(section.preset, tasks), presets_own, classes),
        above,
    ):
        value = merged(value, more)
    num_envs = tasks * -(-algorithm.NUM_ENVS // tasks)  # of each task as many
    try:
        training = Training.model_validate({"num_envs": num_envs, "preset": section.preset, **value})
        if not begun:
            training.check_written()
    except ValidationError as error:
        raise _where_written(error, written, classes) from None
    return training


def presets() -> dict[str, tuple[dict[str, str], Training]]:
    """Name → what the preset is for, what it takes and reaches ("": not measured), and what it resolves to."""
    return {name: (_ABOUT[name], resolve(TrainingSection(preset=name))) for name in PRESETS}


def _name_in(section: Any) -> Any:
    """Whom it is for; None where it does not say so."""
    return section.get("name") if isinstance(section, Mapping) else section


def _classes(*layers: Mapping[str, Any]) -> dict[str, type[TrainingSettings]]:
    """Section → the class of its settings, by the last of `layers` that names a suite or an algorithm.

    Errors: ValidationError.
    """
    found: dict[str, type[TrainingSettings]] = {"network": Network}
    for section, usual in _USUAL.items():
        name = next(filter(None, (_name_in(layer.get(section)) for layer in reversed(layers))), usual)
        try:
            found[section] = settings_of(NAMED[section], str(name))
        except FieldError as error:
            raise refused((section,), error, name) from None
    return found


def _of_preset(
    values: Mapping[str, Any],
    its_own: Mapping[str, type[TrainingSettings]],
    classes: Mapping[str, type[TrainingSettings]],
) -> dict[str, Any]:
    """In sections, without what is another suite's or algorithm's; nets are shaped for an algorithm."""
    other = {section for section in SECTIONS if classes[section] is not its_own[section]}
    if "algorithm" in other:
        other.add("network")
    return {section: value for section, value in in_sections(values, its_own).items() if section not in other}


def _count(env: Mapping[str, Any], settings: type[TrainingSettings]) -> int:
    """How many tasks it has; 1 where it is wrong, which its check says better."""
    try:
        made = settings.model_validate(env)
    except ValidationError:
        return 1
    return len(made.tasks) if isinstance(made, EnvSettings) else 1


def _where_written(
    error: ValidationError, written: Mapping[str, Any], classes: Mapping[str, type[TrainingSettings]]
) -> ValidationError:
    """The same mistakes at the places where the user wrote them, with the nearest name for one that there is not."""
    details = []
    inner: dict[str, type[TrainingSettings]] = {**classes, "group": GroupSettings}
    for problem in error.errors(include_url=False):
        place, more = problem["loc"], problem.get("ctx", {})
        kind: str | PydanticCustomError = problem["type"]
        section = inner.get(str(place[0])) if len(place) > 1 else None
        known = names_under_training(classes) if section is None else list(section.model_fields)
        if place and place[0] in SECTIONS and (place[1] in written if len(place) > 1 else place[0] not in written):
            place = place[1:]
        if kind == "extra_forbidden":
            near = did_you_mean(str(place[-1]), known)
            kind, more = SENTENCE, {"error": FieldError("config.unknown-field", near=near)}
            if place[-1] in _OF_DEMOS and issubclass(classes["algorithm"], OnPolicySettings):
                who = classes["algorithm"].model_fields["name"].default
                more["error"] = FieldError("demos.on-policy", algorithm=who)
        if kind == SENTENCE:
            kind, more = PydanticCustomError(SENTENCE, "{error}", more), {}
        details.append(InitErrorDetails(type=kind, loc=place, input=problem["input"], ctx=more))
    return ValidationError.from_exception_data(error.title, details)


def names_under_training(classes: Mapping[str, type[TrainingSettings]] | None = None) -> list[str]:
    """All that may be written under `training`; without `classes`, where no suite and no algorithm are named."""
    inner = (name for settings in (classes or _classes()).values() for name in settings.model_fields if name != "name")
    return list(dict.fromkeys([*Training.model_fields, *inner]))
