"""Fields as a person types them: name=value."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from orchestrator.errors import ConfigError


def typed_fields(words: Iterable[str]) -> dict[str, Any]:
    """By name, the value of each of `words`. A value that is no JSON is taken as text. Errors: ConfigError."""
    fields: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise ConfigError("cli.no-value", word=word)
        try:
            fields[name] = json.loads(text)
        except ValueError:
            fields[name] = text
    return fields
