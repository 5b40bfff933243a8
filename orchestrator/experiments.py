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

from orchestrator.errors import ConfigError, FieldError
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
    """Every experiment with its `name`, in order, whichever way they were written. Errors: ValueError, one sentence."""
    if isinstance(value, Mapping):
        rows = _grid(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        wrong = next((row for row in value if not isinstance(row, Mapping)), None)
        if wrong is not None:
            raise FieldError("experiments.not-an-object", found=wrong)
        rows = [dict(row) for row in value]
    else:  # a file's name too: the reader of the config has read it
        raise FieldError("experiments.kind")
    if not rows:
        raise FieldError("experiments.none")
    named = _named(rows)
    for row in named:
        name, priority = row["name"], row.get("priority", 0)
        if not isinstance(name, str) or not NAME.match(name):
            raise FieldError("experiments.name", name=name, most=_NAME_LENGTH)
        if SLOTS.match(name):
            raise FieldError("experiments.name-of-a-slot", name=name)
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise FieldError("experiments.priority", name=name, found=priority)
    twice = [name for name, times in Counter(row["name"] for row in named).items() if times > 1]
    if twice:
        raise FieldError("experiments.same-name", name=twice[0])
    return named


def _grid(axes: Mapping[str, Any]) -> list[Row]:
    """Every combination; the last field changes fastest. A value that is no list counts for all."""
    for name in OWN_FIELDS & axes.keys():
        raise FieldError("experiments.not-in-a-grid", name=name)
    values = [value if isinstance(value, list) else [value] for value in axes.values()]
    empty = [name for name, choices in zip(axes, values, strict=True) if not choices]
    if empty:
        raise FieldError("experiments.no-value", name=empty[0])
    if (count := math.prod(map(len, values))) > MOST_SLOTS:
        raise FieldError("experiments.too-many", count=count, most=MOST_SLOTS)
    return [dict(zip(axes, choice, strict=True)) for choice in itertools.product(*values)]


def _named(rows: list[Row]) -> list[Row]:
    """With a name for each that has none: its fields that are not the same in all."""
    fields = list(dict.fromkeys(field for row in rows for field in row if field not in OWN_FIELDS))
    telling = [f for f in fields if len({_text(row[f]) if f in row else None for row in rows}) > 1]
    telling = telling if len(rows) > 1 else fields
    named = []
    for row in rows:
        parts = [f"{_clean(field)}={_clean(_text(row[field]))}" for field in telling if field in row]
        name = ",".join(parts)[:_NAME_LENGTH] or "default"
        named.append(row if "name" in row else {"name": name, **row})
    return named


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _clean(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    return sign + _FOREIGN.sub("-", text).strip("-") or "-"


def settings_in(row: Mapping[str, Any]) -> Row:
    """Without its name and priority: what its program is told."""
    return {field: value for field, value in row.items() if field not in OWN_FIELDS}


def merged(before: Sequence[Row], after: Sequence[Row]) -> list[Row]:
    """`before` and `after` as one list: each keeps its place, and so its slot, for ever. What both have is as `after`
    has it, what only `after` has comes at the end.

    A name is made of the fields that differ, so it changes where another field begins to: one with the very settings of
    one that `after` does not name is that one, under its old name.
    """
    named, known = {row["name"] for row in after}, {row["name"] for row in before}
    once = {key for key, times in Counter(map(_key, before)).items() if times == 1}
    old = {_key(row): row["name"] for row in before if row["name"] not in named and settings_in(row)}
    new = [row for row in after if row["name"] not in known]
    again = {key for key, times in Counter(map(_key, new)).items() if times == 1 and key in once and key in old}
    after = [{**row, "name": old[_key(row)]} if row in new and _key(row) in again else row for row in after]
    newest = {row["name"]: row for row in after}
    return [newest.get(row["name"], row) for row in before] + [row for row in after if row["name"] not in known]


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
        raise ConfigError("experiments.no-file", path=path) from None
    except OSError as error:
        raise ConfigError("experiments.unreadable", path=path, why=error) from None
    except DocumentError as error:
        raise ConfigError("experiments.document", path=path, why=error) from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError("experiments.line-not-json", path=path, line=number, why=error) from None
        if not isinstance(row, dict):
            raise ConfigError("experiments.line-no-object", path=path, line=number, found=line.strip()[:40])
        rows.append(row)
    return rows
