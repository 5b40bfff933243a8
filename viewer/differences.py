"""From one JSON value to the next: what is sent after the first picture. Pure.

A difference is a list of changes, `[path, value]` or `[path]` for what is gone; a path is the keys from the top. Only
objects are looked into: a list that differs is sent whole. A browser applies it with ten lines (`static/main.js`).
"""

from __future__ import annotations

from typing import Any

Json = Any
Change = list[Any]


def changes(old: Json, new: Json) -> list[Change]:
    """What makes `new` of `old`; empty where they are equal."""
    found: list[Change] = []
    _compare(old, new, [], found)
    return found


def _compare(old: Json, new: Json, path: list[str], found: list[Change]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        found.extend([[*path, key]] for key in old if key not in new)
        for key, value in new.items():
            if key not in old:
                found.append([[*path, key], value])
            else:
                _compare(old[key], value, [*path, key], found)
    elif old != new or type(old) is not type(new):
        found.append([path, new])
