"""Lines that fit a terminal: broken between words, what goes on is indented."""

from __future__ import annotations

import textwrap

#: Under what it continues.
INDENT = "  "


def wrapped(line: str, width: int, *, indent: str = INDENT) -> list[str]:
    """`line` in pieces of at most `width` characters. A single word that is longer, as a path may be, stays whole."""
    own = line[: len(line) - len(line.lstrip())]
    pieces = textwrap.wrap(
        line.strip(),
        max(width, len(own + indent) + 1),
        initial_indent=own,
        subsequent_indent=own + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return pieces or [""]


def folded(line: str, width: int, *, indent: str = INDENT) -> str:
    """The same as one text."""
    return "\n".join(wrapped(line, width, indent=indent))
