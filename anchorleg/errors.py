"""Errors as values: an identifier, its fields, and one catalogue a package that has the sentences.

A package's `errors.toml` has a table for each class of error, with a sentence for each identifier (`str.format`)::

    [ConfigError]
    "config.no-file" = "{path}: there is no such config file. Write one with `orchestrator init`."

`raise ConfigError("config.no-file", path=path)` looks the sentence up. Programs and tests use `id` and `fields`, people
the sentence, which may be mended without touching a program. `tests/unit/test_errors.py` holds both sides together.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from anchorleg.printable import printable

#: Fields that JSON has as they are; others as text.
_PLAIN = (str, int, float, bool, type(None))


@cache
def catalogue(package: str) -> dict[str, dict[str, str]]:
    """The sentences of `package`: class of error → identifier → sentence with its fields in braces."""
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
            if package != "builtins" and (found := catalogue(package).get(kind.__name__, {}).get(self.id)) is not None:
                return found
        raise KeyError(f"errors.toml has no {self.id} of {type(self).__name__}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.id, self.fields)

    def as_json(self) -> dict[str, Any]:
        """For `--json`: identifier, fields, sentence, exit code."""
        fields = {name: value if isinstance(value, _PLAIN) else str(value) for name, value in self.fields.items()}
        return {"error": self.id, "fields": fields, "sentence": str(self), "exit_code": self.exit_code}


def _in_words(value: Any) -> Any:
    if isinstance(value, tuple):
        return "\n".join(str(_in_words(line)) for line in value)
    if isinstance(value, NamedError):
        return str(value)
    return printable(str(value)) if isinstance(value, str | PurePath | BaseException) else value


def _made_again(kind: type[NamedError], name: str, fields: dict[str, Any]) -> NamedError:
    return kind(name, **fields)
