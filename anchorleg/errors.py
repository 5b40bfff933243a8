"""Errors as values: an identifier, its fields, and one catalogue a package that has the sentences.

A package's `errors.toml` has a table for each class of error, with a sentence for each identifier (`str.format`)::

    [ConfigError]
    "config.no-file" = "{path}: there is no such config file. Write one with `orchestrator init`."

`raise ConfigError("config.no-file", path=path)` looks the sentence up; where the catalogue cannot be read, the
identifier and the fields stand for it. Programs and tests use `id` and `fields`, people the sentence, which may be
mended without touching a program. `tests/unit/test_errors.py` holds both sides together.
"""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from functools import cache
from pathlib import PurePath
from typing import Any, Self

from anchorleg.words import printable

#: Fields that JSON has as they are; others as text.
_PLAIN = (str, int, float, bool, type(None))
#: The identifier of several errors at once.
SEVERAL = "several"


@cache
def catalogue(package: str) -> dict[str, dict[str, str]]:
    """The sentences of `package`: class of error → identifier → sentence with its fields in braces."""
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files(package).joinpath("errors.toml").read_text(encoding="utf-8"))


class NamedError(Exception):
    """An error that a user is told in one sentence, without a traceback. Subclasses set `exit_code`.

    `id` is stable; `fields` are what the sentence needs, by name: numbers, texts, paths, or other errors, whose
    sentence is shown. Foreign text is made printable here. A tuple is shown as lines.
    """

    exit_code = 1

    def __init__(self, name: str, /, **fields: Any) -> None:
        self.id, self.fields = name, fields
        super().__init__(self._template().format(**{field: _in_words(value) for field, value in fields.items()}))

    def _template(self) -> str:
        for kind in type(self).__mro__:
            package = kind.__module__.partition(".")[0]
            try:
                sentences = {} if package == "builtins" else catalogue(package).get(kind.__name__, {})
            except OSError:  # no descriptor is free, or the package was replaced under a running program
                return ": ".join((self.id, ", ".join(f"{field} {{{field}}}" for field in self.fields)))
            if self.id in sentences:
                return sentences[self.id]
        raise KeyError(f"errors.toml has no {self.id} of {type(self).__name__}")

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @classmethod
    def at(cls, where: str, field: str, error: NamedError) -> Self:
        """`error` of one field as one of this class, with both places ("": none) before its sentence and as fields."""
        made = cls.__new__(cls, ": ".join(filter(None, (where, field, str(error)))))
        places = {"where": where, "field": field}
        made.id, made.fields = error.id, {**{name: at for name, at in places.items() if at}, **error.fields}
        return made

    @classmethod
    def all_of(cls, errors: Sequence[NamedError]) -> Self:
        """`errors` at once, one line each, as one of this class; the only one keeps its identifier."""
        if len(errors) == 1:
            return cls.at("", "", errors[0])
        made = cls.__new__(cls, "\n".join(map(str, errors)))
        made.id, made.fields = SEVERAL, {"errors": tuple(errors)}
        return made

    def with_id(self) -> str:
        """The sentence, and the identifier in brackets; of several errors, each with its own."""
        lines = self.fields["errors"] if self.id == SEVERAL else ()
        return "\n".join(line.with_id() for line in lines) or f"{self} [{self.id}]"

    def as_json(self) -> dict[str, Any]:
        """For `--json`: identifier, fields, sentence, exit code."""
        return {
            "error": self.id, "fields": _in_json(self.fields), "sentence": str(self), "exit_code": self.exit_code
        }  # fmt: skip


def _in_words(value: Any) -> Any:
    if isinstance(value, tuple):
        return "\n".join(str(_in_words(line)) for line in value)
    if isinstance(value, NamedError):
        return str(value)
    return printable(str(value)) if isinstance(value, str | PurePath | BaseException) else value


def _in_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _in_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(inner) for inner in value]
    if isinstance(value, NamedError):
        return value.as_json()
    return value if isinstance(value, _PLAIN) else str(value)
