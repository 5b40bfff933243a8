"""Who gave a slot how much experience, in words. Pure: from what the slot's program reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorleg.words import counted
from orchestrator.screens.cells import ago

#: So many are named; a class is more, and `syncd contributors` shows all.
NAMED = 5


def given_words(progress: Mapping[str, Any], now: float) -> str:
    """One line: "others gave: ann 12 segments (6,000 transitions, last 40 s ago)"; empty where nobody gave anything."""
    told = progress.get("contributors")
    contributors = told.items() if isinstance(told, Mapping) else ()
    parts = [_words(who, one, now) for who, one in contributors if isinstance(one, Mapping)]
    parts, more = parts[:NAMED], len(parts) - NAMED
    if not parts:
        return ""
    return "others gave: " + ", ".join([*parts, *([f"and {more} more"] if more > 0 else [])])


def _words(who: str, one: Mapping[str, Any], now: float) -> str:
    segments, transitions, last_at = (_number(one.get(name)) for name in ("segments", "transitions", "last_at"))
    last = f", last {ago(now - last_at)}" if last_at else ""
    return f"{who} {counted(round(segments), 'segment')} ({transitions:,.0f} transitions{last})"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
