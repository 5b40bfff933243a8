"""What pydantic found wrong with a config, as sentences: what, where, and the nearest known name. Pure."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from anchorleg.words import did_you_mean
from trainer.config.settings import SENTENCE

#: Characters of a value that are quoted.
_QUOTE = 80
#: What pydantic says of these names its own classes, or leaves the notation open.
_KINDS_OF_VALUES = {
    "list_type": "a list is needed, in brackets: [...]",
    "too_short": "the list must not be empty",
    "model_type": "a section is needed, in braces: {...}",
    "model_attributes_type": "a section is needed, in braces: {...}",
    "dict_type": "an object is needed, in braces: {...}",
    "int_type": "a whole number is needed",
    "int_parsing": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "float_type": "a number is needed",
    "float_parsing": "a number is needed",
    "bool_type": "true or false is needed",
    "bool_parsing": "true or false is needed",
    "string_type": "a text is needed, in quotes",
}


def sentences(
    error: ValidationError, model: type[BaseModel], below: Mapping[str, Collection[str]] | None = None
) -> list[tuple[str, str]]:
    """(dotted path, sentence) of each mistake. `below`: section → names that stand in it, for one that misses it."""
    lines = []
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["type"] == "too_short" and any(_is_in(other["loc"], problem["loc"]) for other in problems):
            continue  # pydantic counts what is right in the list
        path = [str(part) for part in problem["loc"]]
        dotted = ".".join(path) or "config"
        if problem["type"] == "extra_forbidden":
            names = _known_fields(model, path[:-1])
            inner = next((section for section, known in (below or {}).items() if dotted in known), None)
            hint = did_you_mean(path[-1], names) if inner is None else f'did you mean "{inner}.{dotted}"?'
            words = f"{dotted}: there is no such field; {hint}"
        elif problem["type"] in {"value_error", SENTENCE}:
            words = str(problem["ctx"]["error"])
            words = f"{dotted}: {words}" if path else words
        elif problem["type"] == "string_pattern_mismatch":
            words = f"{dotted}: {problem['input']!r} cannot be used. {_description(model, path)}".rstrip()
        else:
            words = _KINDS_OF_VALUES.get(problem["type"]) or problem["msg"][0].lower() + problem["msg"][1:]
            found = repr(problem["input"])
            words = f"{dotted}: {words} (found {found if len(found) <= _QUOTE else found[:_QUOTE] + '...'})"
        lines.append((dotted, words))
    return lines


def _is_in(place: tuple[int | str, ...], section: tuple[int | str, ...]) -> bool:
    return len(place) > len(section) and place[: len(section)] == section


def _known_fields(model: type[BaseModel], path: list[str]) -> list[str]:
    for name in path:
        field = model.model_fields.get(name)
        if field is None:
            return []
        inner = _model_in(field.annotation)
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _description(model: type[BaseModel], path: list[str]) -> str:
    for name in path[:-1]:
        inner = _model_in(model.model_fields[name].annotation) if name in model.model_fields else None
        if inner is None:
            return ""
        model = inner
    field = model.model_fields.get(path[-1])
    return field.description or "" if field is not None else ""


def _model_in(annotation: Any) -> type[BaseModel] | None:
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None
