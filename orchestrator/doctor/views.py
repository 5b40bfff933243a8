"""How `doctor` says what to write into the config."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text


def recommendation(values: dict[str, Any], reasons: tuple[str, ...]) -> RenderableType:
    """What to write into the config, ready to be pasted, and why."""
    if not values:
        lines = ["The config fits this place as it is.", *(f"- {reason}" for reason in reasons)]
        return Group(*(Text(line) for line in lines))
    title = Text("Recommended for cluster_config.json:", style="bold")
    why = [Text(f"- {reason}") for reason in reasons]
    return Group(title, Text(json.dumps(values, indent=2)), *why)
