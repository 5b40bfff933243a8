"""Three small languages of a config: durations as Slurm writes them, `@{name}` places, and fields typed as name=value.

Durations: sbatch(1), `--time`: "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours",
"days-hours:minutes" and "days-hours:minutes:seconds".

Places, of the job script and of a config's `command`: `@{name}`, and nothing else. So bash keeps `$`, `"$@"`, `%j` and
`user@host` (`string.Template` and Jinja both break on one of these).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from orchestrator.errors import ConfigError, FieldError

_PLAIN = re.compile(r"(?:(?P<h>\d+):(?=\d+:))?(?P<m>\d+)(?::(?P<s>\d+))?\Z")
_DAYS = re.compile(r"(?P<d>\d+)-(?P<h>\d+)(?::(?P<m>\d+)(?::(?P<s>\d+))?)?\Z")


def parse_duration_s(text: str) -> int | None:
    """Seconds in a Slurm duration; None for "infinite". Errors: ValueError with the forms that are understood."""
    text = text.strip()
    if text.lower() in {"infinite", "unlimited", "n/a"}:
        return None
    match = _DAYS.match(text) or _PLAIN.match(text)
    if match is None:
        raise FieldError("config.time-limit", text=text)
    days, hours, minutes, seconds = (int(match.groupdict().get(unit) or 0) for unit in ("d", "h", "m", "s"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def format_duration(seconds: float) -> str:
    """`H:MM:SS`, with days in front where there are any; the form that sbatch reads."""
    total = max(0, int(seconds))
    days, rest = divmod(total, 86400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


_PLACEHOLDER = re.compile(r"@\{([^{}]*)\}")


def names_in(text: str) -> set[str]:
    """The names that `text` has places for."""
    return set(_PLACEHOLDER.findall(text))


def filled(text: str, value_of: Callable[[str], str]) -> str:
    """`text` with `value_of(name)` in each place. Errors: those of `value_of`."""
    return _PLACEHOLDER.sub(lambda match: value_of(match[1]), text)


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
