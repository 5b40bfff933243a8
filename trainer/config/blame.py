"""Somebody else's error, as it is told to a user."""

from __future__ import annotations

import importlib
import importlib.metadata
import traceback

#: So many letters of it are told.
_LETTERS = 300


def blame(error: BaseException, *callers: str) -> str:
    """Its kind, its first words, and the line that raised it, where that is in none of the files `callers`."""
    skipped = {importlib.__file__, importlib.metadata.__file__, *callers}
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if line.filename not in skipped and not line.filename.startswith("<frozen")
    ]
    place = f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""
    words = " ".join(str(error).split())
    words = words if len(words) <= _LETTERS else words[:_LETTERS] + "…"
    return f"{type(error).__name__}: {words}{place}" if words else f"{type(error).__name__}{place}"
