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
#: The longest config of ours has a few kilobytes; experiments of a large study have some hundred.
MOST_BYTES = 4 * 2**20
#: In longer files no line is looked for: PyYAML reads 10 kB in 0.1 s.
_MOST_SEARCHED = 2**17
#: What a value without quotes is, where it is not a text.
_PLAIN = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
}
#: What word processors and web pages put in the place of a quote or a blank.
_FOREIGN = set("\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb\u00a0\u202f\u200b\ufeff")


class DocumentError(NamedError):
    """The text cannot be used: a clause to be put behind the file's name, with ", line 3, column 5: " or ": " first."""


@dataclass(frozen=True)
class LoadedSection:
    """What the user asked for, as it was written, and resolved. `run_name` and `wandb` where the file is a cluster
    config that has them.
    """

    section: TrainingSection
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
        raise located(ConfigError, found, config, dict(typed), "training." if is_cluster else "") from None
    try:
        wandb = WandbSection.model_validate(file.get("wandb") or {} if is_cluster else {})
    except ValidationError as error:
        found = [(f"wandb.{place}", why) for place, why in sentences(error, WandbSection)]
        raise located(ConfigError, found, config) from None
    run_name = file.get("run_name")
    training = resolve(section)
    warnings = tuple(f"{name}: {why}" for name, why in training.warnings_of())
    return LoadedSection(section, training, str(run_name) if run_name else None, warnings, wandb)


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
    kind: type[Kind],
    found: Iterable[tuple[str, NamedError]],
    file: Path | str | None,
    typed: Collection[str] = (),
    section: str = "",
) -> Kind:
    """One error of `kind` with a line for each (place, mistake), behind where it was written: a file and its line,
    another name of what was read, or the command line, as all of `typed` was. `section`: what stands before the places
    in the file.
    """
    lines = []
    for place, why in found:
        where = "the command line"
        if file is not None and place not in typed:
            where = f"{file}{line_of(file, section + place) if isinstance(file, Path) else ''}"
        lines.append(kind.at(where, place, why))
    return kind.all_of(lines)


def read_document(path: Path) -> dict[str, Any]:
    """The object in `path`. Errors: OSError; DocumentError."""
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DocumentError("document.too-long", most=MOST_BYTES >> 20)
    text, is_yaml = text_of(data), path.suffix.lower() in YAML_SUFFIXES
    try:
        value = _of_yaml(text) if is_yaml else _of_json(text)
    except RecursionError:
        raise DocumentError("document.nested") from None
    except ValueError as error:  # a number of more digits than Python makes a number of
        raise DocumentError("document.no-number", why=error) from None
    if not isinstance(value, dict):
        kind = "a YAML mapping, `name: value` lines" if is_yaml else "a JSON object in braces"
        kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "empty (null)"}
        raise DocumentError("document.no-mapping", wanted=kind, found=kinds.get(type(value), "a number"))
    return value


def text_of(data: bytes) -> str:
    """What an editor saved, in any encoding of Unicode, with its mark or without. Errors: DocumentError."""
    try:
        return data.decode(json.detect_encoding(data))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DocumentError("document.no-utf8", line=line) from None


def _of_json(text: str) -> Any:
    def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise DocumentError("document.twice-in-object", name=name)
            found[name] = value
        return found

    if not text.strip():
        raise DocumentError("document.empty")
    try:
        return json.loads(text, object_pairs_hook=without_doubles)
    except json.JSONDecodeError as error:
        behind_comma = text[: error.pos].rstrip().endswith(",") and text[error.pos :][:1] in {"}", "]"}
        why = "remove the comma before it" if behind_comma else _foreign(text[error.pos :][:1]) or error.msg
        raise DocumentError("document.no-json", line=error.lineno, column=error.colno, why=why) from None


def _foreign(letter: str) -> str:
    """What to type in the place of a foreign quote or blank; "" of other letters."""
    if letter not in _FOREIGN:
        return ""
    name = f"{unicodedata.name(letter).lower()} (U+{ord(letter):04X})"
    return f"here is a {name}: type a straight quote, or an ordinary space, in its place"


def _of_yaml(text: str) -> Any:
    import yaml

    try:
        return _loader()(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DocumentError("document.no-yaml", **_at(mark), why=error.problem or error.context) from None
    except yaml.YAMLError as error:  # a character that no text has
        raise DocumentError("document.yaml-character", why=str(error).splitlines()[0]) from None


def _at(mark: Any) -> dict[str, int]:
    return {"line": mark.line + 1, "column": mark.column + 1}


@cache
def _loader() -> Any:
    """PyYAML's safe loader, with the values that JSON has and no others."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers = {None: [(kind, re.compile(rf"(?:{form})\Z")) for kind, form in _PLAIN.items()]}  # noqa: RUF012

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                alias = self.peek_event()
                raise DocumentError("document.alias", **_at(alias.start_mark), name=alias.anchor)
            return super().compose_node(parent, index)

        def construct_scalar(self, node: Any) -> str:
            if node.style is None and (why := _foreign(node.value[:1]) or _foreign(node.value[-1:])):
                raise DocumentError("document.foreign-letter", **_at(node.start_mark), why=why)
            return str(super().construct_scalar(node))

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:  # noqa: ARG002 - PyYAML's
            found: dict[str, Any] = {}
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise DocumentError("document.no-name", **_at(key.start_mark))
                name = self.construct_scalar(key)
                if name in found:
                    raise DocumentError("document.twice-in-mapping", **_at(key.start_mark), name=name)
                found[name] = self.construct_object(value, deep=True)
            return found

        def nothing_of_json(self, node: Any) -> Any:
            raise DocumentError("document.tag", **_at(node.start_mark), tag=node.tag)

    Loader.yaml_constructors = {
        "null": lambda *_: None,
        "bool": lambda _, node: node.value.lower() == "true",
        "int": lambda _, node: int(node.value, 0 if node.value[:2] in {"0o", "0x"} else 10),
        "float": lambda _, node: float(node.value),
        "tag:yaml.org,2002:str": Loader.construct_scalar,
        "tag:yaml.org,2002:seq": Loader.construct_yaml_seq,
        "tag:yaml.org,2002:map": Loader.construct_yaml_map,
        None: Loader.nothing_of_json,
    }
    return Loader


def line_of(path: Path, place: str) -> str:
    """`, line 3` where the field of a dotted name stands in a config, or the last part of its name that stands there;
    "" where none does. JSON is read as the YAML that it is.
    """
    import yaml

    line = ""
    try:
        text = text_of(path.read_bytes())
        node = yaml.compose(text.replace("\t", " "), _loader()) if len(text) < _MOST_SEARCHED else None
    except (OSError, DocumentError, RecursionError, yaml.YAMLError):
        return line
    for name in filter(None, place.split(".")):
        inner = {key.value: (key, value) for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
        if name not in inner:
            break
        key, node = inner[name]
        line = f", line {key.start_mark.line + 1}"
    return line


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
