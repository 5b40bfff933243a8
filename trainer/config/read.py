"""Config files: JSON or YAML as values, their training section, and what is wrong with them, in sentences.

YAML where the name ends in `.yaml` or `.yml`, as its version 1.2 has it (yaml.org/spec/1.2.2, chapter 10.3, the core
schema): `4:00:00` and `on` are texts, `3e-4` is a number, and `010` is ten. What JSON has no word for (tags, dates,
infinity) is no value here, and a value that stands for another one (`*name`) is refused, so that a small file cannot
become a large one.
"""

from __future__ import annotations

import difflib
import json
import re
import typing
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from anchorleg.errors import NamedError
from anchorleg.words import did_you_mean
from trainer.config.fields import SENTENCE
from trainer.config.section import TrainingSection, named_first, put, resolve
from trainer.config.training import Training
from trainer.config.wandb import WandbSection
from trainer.errors import ConfigError, FieldError

Kind = TypeVar("Kind", bound=NamedError)
YAML_SUFFIXES = (".yaml", ".yml")
#: What a value without quotes is, where it is not a text.
_PLAIN = {
    "null": re.compile(r"(~|null|Null|NULL|)\Z"),
    "bool": re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"),
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)\Z"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z"),
}


#: Quotes and blanks that editors put in the place of ASCII's.
_FOREIGN = set("\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb\u00a0\u202f\u200b\ufeff")


class DocumentError(NamedError):
    """The text cannot be used: a clause to be put behind the file's name, with ", line 3: " or ": " first."""


@dataclass(frozen=True)
class LoadedSection:
    """What the user asked for, resolved. `run_name` and `wandb` where the file is a cluster config that has them."""

    training: Training
    run_name: str | None
    warnings: tuple[str, ...]
    wandb: WandbSection


def read_section(config: Path | None, preset: str | None, settings: list[str]) -> LoadedSection:
    """The file's section (none: empty), then `preset`, then `settings` ("name=value"), resolved.

    Errors: ConfigError, one line a mistake.
    """
    file = _read(config) if config else {}
    is_cluster = "training" in file or "run_name" in file
    value = dict(_training_in(file, config) if is_cluster else file)
    typed = named_first([*([] if preset is None else [("preset", preset)]), *map(_setting, settings)])
    for name, words in typed:
        put(value, name, words)
    try:
        section = TrainingSection.model_validate(value)
    except ValidationError as error:
        found = sentences(error, TrainingSection)
        raise located(ConfigError, found, config, dict(typed)) from None
    try:
        wandb = WandbSection.model_validate(file.get("wandb") or {} if is_cluster else {})
    except ValidationError as error:
        found = [(f"wandb.{place}", why) for place, why in sentences(error, WandbSection)]
        raise located(ConfigError, found, config) from None
    run_name = file.get("run_name")
    training = resolve(section)
    warnings = tuple(f"{name}: {why}" for name, why in training.warnings_of())
    return LoadedSection(training, str(run_name) if run_name else None, warnings, wandb)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_document(path)
    except OSError as error:
        raise ConfigError("config.unreadable", path=path, why=error.strerror) from None
    except DocumentError as error:
        raise ConfigError("config.document", path=path, why=error) from None


def _training_in(file: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    section = file.get("training") or {}
    if not isinstance(section, dict):
        raise ConfigError("config.training-no-section", path=path)
    # The other sections are the orchestrator's, which refuses what it does not know.
    others = file.keys() - {"training"}
    if not section and (near := difflib.get_close_matches("training", others, n=1, cutoff=0.7)):
        raise ConfigError("config.unknown-section", path=path, section=near[0])
    return section


def _setting(text: str) -> tuple[str, Any]:
    """(dotted name, value) of one "name=value". Errors: ConfigError."""
    name, equals, words = text.partition("=")
    name = name.removeprefix("training.")
    if not equals or not name.rpartition(".")[2]:
        raise ConfigError("cli.set-without-field" if equals else "cli.set-without-equals", setting=text)
    try:
        value = json.loads(words)
    except (ValueError, RecursionError):
        value = words.split(",") if "," in words else words
    return name, [value] if name.endswith("tasks") and isinstance(value, str) else value


def located(
    kind: type[Kind], found: Iterable[tuple[str, NamedError]], file: Path | str | None, typed: Collection[str] = ()
) -> Kind:
    """One error of `kind` with a line for each (place, mistake), behind where it was written: a file, another name of
    what was read, or the command line, as all of `typed` was.
    """
    written = "the command line" if file is None else str(file)
    return kind.all_of([kind.at("the command line" if at in typed else written, at, why) for at, why in found])


def read_document(path: Path) -> dict[str, Any]:
    """The object in `path`, JSON or YAML of the values that JSON has. Errors: OSError; DocumentError."""
    import yaml

    text = text_of(path.read_bytes())
    try:
        if path.suffix.lower() in YAML_SUFFIXES:
            value = _loader()(text).get_single_data()
        else:
            value = json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        why = _foreign(text[error.pos :][:1]) or error.msg
        raise DocumentError("document.no-json", line=error.lineno, column=error.colno, why=why) from None
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise DocumentError("document.no-yaml", why=why) from None
    except (RecursionError, ValueError) as error:  # nested too deeply; a number of more digits than Python reads
        raise DocumentError("document.no-config", why=error) from None
    if not isinstance(value, dict):
        raise DocumentError("document.no-mapping")
    return value


def text_of(data: bytes) -> str:
    """What an editor saved, in any encoding of Unicode, with its mark or without. Errors: DocumentError."""
    try:
        return data.decode(json.detect_encoding(data))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DocumentError("document.no-utf8", line=line) from None


def _foreign(letter: str) -> str:
    """What to type in the place of a foreign quote or blank; "" of other letters."""
    if letter not in _FOREIGN or not letter:
        return ""
    name = f"{unicodedata.name(letter).lower()} (U+{ord(letter):04X})"
    return f"{name} found: type a straight quote or an ordinary space instead"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise DocumentError("document.twice", name=next(name for name in names if names.count(name) > 1))
    return found


@cache
def _loader() -> Any:
    """PyYAML's safe loader, with the plain values of YAML 1.2's JSON schema, and names that are texts, each once."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers = {None: [(f"tag:yaml.org,2002:{kind}", form) for kind, form in _PLAIN.items()]}  # noqa: RUF012

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            for key, _ in node.value:
                key.tag = "tag:yaml.org,2002:str"
            _each_once([(str(key.value), None) for key, _ in node.value])
            return super().construct_mapping(node, deep)

        def construct_scalar(self, node: Any) -> Any:
            plain = node.value if isinstance(node.value, str) and node.style is None else ""
            if why := _foreign(plain[:1]) or _foreign(plain[-1:]):
                at = node.start_mark
                raise DocumentError("document.foreign-letter", line=at.line + 1, column=at.column + 1, why=why)
            return super().construct_scalar(node)

    return Loader


#: Characters of a value that are quoted.
_QUOTE = 80
#: What pydantic says of these names its own classes, or leaves the notation open.
_WORDS = {
    **dict.fromkeys(("list_type", "tuple_type"), "a list is needed, in brackets: [...]"),
    "too_short": "the list must not be empty",
    **dict.fromkeys(("model_type", "model_attributes_type"), "a section is needed, in braces: {...}"),
    "dict_type": "an object is needed, in braces: {...}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number is needed"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number is needed"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false is needed"),
    "string_type": "a text is needed, in quotes",
}


def sentences(
    error: ValidationError, model: type[BaseModel], below: Mapping[str, Collection[str]] | None = None
) -> list[tuple[str, NamedError]]:
    """(dotted path, mistake) of each mistake that pydantic found; "" where it is about the whole. `below`: section →
    names that stand in it, for one that misses it. Pure.
    """
    found: list[tuple[str, NamedError]] = []
    problems = error.errors(include_url=False)
    for problem in problems:
        place = [str(part) for part in problem["loc"]]
        if problem["type"] == "too_short" and any(
            other["loc"][:-1][: len(place)] == problem["loc"] for other in problems
        ):
            continue  # pydantic counts what is right in the list
        found.append((".".join(place), _mistake(problem, place, _fields_of(model, place[:-1]), below or {})))
    return found


def _mistake(
    problem: Any, place: list[str], fields: Mapping[str, Any], below: Mapping[str, Collection[str]]
) -> NamedError:
    if problem["type"] == "extra_forbidden":
        dotted = ".".join(place)
        inner = next((section for section, known in below.items() if dotted in known), None)
        near = did_you_mean(place[-1], fields) if inner is None else f'did you mean "{inner}.{dotted}"?'
        return FieldError("config.unknown-field", near=near)
    if problem["type"] in {"value_error", SENTENCE}:
        why = problem["ctx"]["error"]
        return why if isinstance(why, NamedError) else FieldError("config.field-refused", why=why)
    if problem["type"] == "string_pattern_mismatch":
        about = fields[place[-1]].description if place[-1] in fields else f"Its form is {problem['ctx']['pattern']}"
        return FieldError("config.field-form", found=problem["input"], about=about)
    quoted = repr(problem["input"])
    return FieldError(
        "config.field-kind",
        wanted=_WORDS.get(problem["type"]) or problem["msg"][0].lower() + problem["msg"][1:],
        found=quoted if len(quoted) <= _QUOTE else quoted[:_QUOTE] + "...",
    )


def _fields_of(model: type[BaseModel], sections: Iterable[str]) -> dict[str, Any]:
    """The fields by name of the section that lies there; none where there is no such."""
    for name in sections:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        options = (annotation, *typing.get_args(annotation))
        inner = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not inner:
            return {}
        model = inner[0]
    return dict(model.model_fields)
