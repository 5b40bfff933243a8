"""Named starting points of the training section, as `presets.toml` has them."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

DEFAULT_PRESET = "guide"
_TABLES: dict[str, dict[str, Any]] = tomllib.loads(files(__package__).joinpath("presets.toml").read_text("utf-8"))
_SHARED = _TABLES.pop("shared")
#: Preset → what it is for, in a sentence.
ABOUT: dict[str, str] = {name: table.pop("about") for name, table in _TABLES.items()}
_BY_TASK: dict[str, dict[str, int]] = {name: table.pop("by_task", {}) for name, table in _TABLES.items()}


def _whole(table: dict[str, Any]) -> dict[str, Any]:
    """With the tables that it shares with others, below its own values."""
    parts = [_SHARED[name] for name in table.pop("shares", ())]
    return {name: value for part in (*parts, table) for name, value in part.items()}


#: Preset → what differs from the guide, but for what is in `by_task`.
PRESETS = {name: _whole(table) for name, table in _TABLES.items()}


def by_task(preset: str, tasks: int) -> dict[str, Any]:
    """The values of `preset` that depend on how many `tasks` there are."""
    if not (values := dict(_BY_TASK.get(preset, {}))):
        return {}
    updates = values.pop("updates_a_round")
    return {name: value * tasks for name, value in values.items()} | {"updates_per_step": updates / tasks}
