"""Experiments: a grid, a list or a file of JSON lines becomes one named set of fields for each slot."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import ConfigError
from trainer.config.read import DocumentError, text_of

#: Of an experiment's fields, those that are no settings of its program.
OWN_FIELDS = frozenset({"name", "priority"})
#: What a shell takes without quotes, and a person can type.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]{0,99}\Z")
#: What names a slot, or a range of them, on the command line: never an experiment.
SLOTS = re.compile(r"(\d+)(?:-(\d+))?\Z")
_NAME_LENGTH = 100
#: What the tick's cost is measured with (bench/tick.py), and more than anybody's quota will see through.
MOST_SLOTS = 2000
_FOREIGN = re.compile(r"[^A-Za-z0-9._+-]+")

Row = dict[str, Any]


def expanded(value: Any) -> list[Row]:
    """Every experiment with its `name`, in order, whichever way they were written. What is expanded already stays as it
    is. Errors: ValueError, one sentence.
    """
    if isinstance(value, Mapping):
        rows = _grid(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        wrong = next((row for row in value if not isinstance(row, Mapping)), None)
        if wrong is not None:
            raise ValueError(f"each experiment is an object in braces, this is not: {wrong!r}")
        rows = [dict(row) for row in value]
    else:  # a file's name too: whoever reads the config has read it
        raise ValueError('write a grid ({"seed": [0, 1]}), a list of objects, or the name of a file of JSON lines')  # noqa: TRY004
    if not rows:
        raise ValueError("there is none: leave the field out, or write at least one")
    named = _named(rows)
    for row in named:
        _check(row)
    twice = [name for name, times in Counter(row["name"] for row in named).items() if times > 1]
    if twice:
        raise ValueError(f'two are called "{twice[0]}": give each a "name" of its own')
    return named


def _grid(axes: Mapping[str, Any]) -> list[Row]:
    """Every combination; the last field changes fastest. A value that is no list counts for all."""
    for name in OWN_FIELDS & axes.keys():
        raise ValueError(f'"{name}" belongs to one experiment: a grid has none, write a list of objects')
    values = [value if isinstance(value, list) else [value] for value in axes.values()]
    empty = [name for name, choices in zip(axes, values, strict=True) if not choices]
    if empty:
        raise ValueError(f'"{empty[0]}" has no value: its list is empty')
    if (count := math.prod(map(len, values))) > MOST_SLOTS:
        raise ValueError(f"these are {count:,} combinations; a run has {MOST_SLOTS:,} experiments at most")
    return [dict(zip(axes, choice, strict=True)) for choice in itertools.product(*values)]


def _named(rows: list[Row]) -> list[Row]:
    """With a name for each that has none: its fields that are not the same in all."""
    fields = list(dict.fromkeys(field for row in rows for field in row if field not in OWN_FIELDS))
    telling = [f for f in fields if len({_text(row[f]) if f in row else None for row in rows}) > 1]
    telling = telling if len(rows) > 1 else fields
    return [row if "name" in row else {"name": _name_of(row, telling), **row} for row in rows]


def _name_of(row: Row, fields: list[str]) -> str:
    parts = [f"{_clean(field)}={_clean(_text(row[field]))}" for field in fields if field in row]
    return ",".join(parts)[:_NAME_LENGTH] or "default"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _clean(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    return sign + _FOREIGN.sub("-", text).strip("-") or "-"


def _check(row: Row) -> None:
    name, priority = row["name"], row.get("priority", 0)
    if not isinstance(name, str) or not NAME.match(name):
        raise ValueError(f"{name!r} cannot be a name: letters, digits and . _ = , + - (at most {_NAME_LENGTH})")
    if SLOTS.match(name):
        raise ValueError(f'"{name}" cannot be a name: it would be taken for the number of a slot, or a range of them')
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise ValueError(f"{name}: priority is a whole number, larger comes first (found {priority!r})")  # noqa: TRY004


def settings_in(row: Mapping[str, Any]) -> Row:
    """Without its name and priority: what its program is told."""
    return {field: value for field, value in row.items() if field not in OWN_FIELDS}


def merged(before: Sequence[Row], after: Sequence[Row]) -> list[Row]:
    """`before` and `after` as one list: each keeps its place, and so its slot, for ever. What both have is as `after`
    has it, what only `after` has comes at the end.

    A name is made of the fields that differ, so it changes where another field begins to: one with the very settings of
    one that `after` does not name is that one, under its old name.
    """
    after = _with_old_names(before, after)
    newest = {row["name"]: row for row in after}
    known = {row["name"] for row in before}
    return [newest.get(row["name"], row) for row in before] + [row for row in after if row["name"] not in known]


def _with_old_names(before: Sequence[Row], after: Sequence[Row]) -> list[Row]:
    named, known = {row["name"] for row in after}, {row["name"] for row in before}
    once = {key for key, times in Counter(map(_key, before)).items() if times == 1}
    old = {_key(row): row["name"] for row in before if row["name"] not in named and settings_in(row)}
    new = [row for row in after if row["name"] not in known]
    again = {key for key, times in Counter(map(_key, new)).items() if times == 1 and key in once and key in old}
    return [{**row, "name": old[_key(row)]} if row in new and _key(row) in again else row for row in after]


def same_settings(rows: Sequence[Row], row: Row) -> Row | None:
    """The one of `rows` that tells its program the same as `row`."""
    return next((one for one in rows if _key(one) == _key(row)), None)


def _key(row: Row) -> str:
    return json.dumps(settings_in(row), sort_keys=True)


def read_lines(path: Path) -> list[Row]:
    """A file with one experiment, a JSON object, on each line. Errors: ConfigError naming file and line."""
    try:
        lines = text_of(path.read_bytes()).split("\n")
    except FileNotFoundError:
        raise ConfigError(f"experiments: there is no file {path}.") from None
    except OSError as error:
        raise ConfigError(f"experiments: {path} cannot be read ({error}).") from None
    except DocumentError as error:
        raise ConfigError(f"experiments: {path}{error}.") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"experiments: {path}, line {number}: not valid JSON: {error}.") from None
        if not isinstance(row, dict):
            raise ConfigError(
                f"experiments: {path}, line {number}: write an object in braces, not {line.strip()[:40]}."
            )
        rows.append(row)
    return rows
