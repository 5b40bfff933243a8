"""Who gave a slot how much experience, in words. Pure: from what the slot's program reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorleg.words import counted
from orchestrator.screens.cells import ago

#: So many are named; a class is more, and `syncd contributors` shows all.
NAMED = 5
#: What a program reports of whom, and what they are called.
_WHO = {"contributors": "others", "group": "its group"}


def given_words(progress: Mapping[str, Any], now: float) -> str:
    """One line: "others gave: ann 12 segments (6,000 transitions, last 40 s ago)", and the same of the other slots of
    its group; empty where nobody gave anything.
    """
    said = [_of_all(words, progress.get(name), now) for name, words in _WHO.items()]
    return "; ".join(words for words in said if words)


def _of_all(who: str, told: Any, now: float) -> str:
    givers = told.items() if isinstance(told, Mapping) else ()
    parts = [_words(giver, one, now) for giver, one in givers if isinstance(one, Mapping)]
    parts, more = parts[:NAMED], len(parts) - NAMED
    if not parts:
        return ""
    return f"{who} gave: " + ", ".join([*parts, *([f"and {more} more"] if more > 0 else [])])


def _words(who: str, one: Mapping[str, Any], now: float) -> str:
    segments, transitions, last_at = (_number(one.get(name)) for name in ("segments", "transitions", "last_at"))
    last = f", last {ago(now - last_at)}" if last_at else ""
    return f"{who} {counted(round(segments), 'segment')} ({transitions:,.0f} transitions{last})"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
