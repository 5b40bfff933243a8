"""Foreign text as text. Used where it enters: parsed frames and manifests, errors, what a program over there printed.

A terminal obeys escape sequences, a log takes a line break for a line, and one mark of Unicode turns a name around. So
whatever another machine said is made harmless once, and nobody who prints it needs to think of it. What our commands
print passes `shown` at last (`anchorleg.output`): a job's last words are another program's too. Standard library.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

#: Of foreign text where nobody says otherwise: some lines of a terminal.
MOST_CHARS = 2000
#: What may be no mere letter: quick for what is ASCII.
_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")


def printable(text: str, most: int = MOST_CHARS) -> str:
    r"""`text` on one line, in at most `most` characters, of which a terminal shows each and obeys none.

    White space becomes a space, and what is not printable is written out (`\x1b`). What is harmless stays as it is, so
    that applying it twice changes nothing.
    """
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.isprintable():
        return text
    written = "".join(letter if letter.isprintable() else _written(letter) for letter in text)
    return written if len(written) <= most else written[: most - 1] + "…"


def shown(text: str) -> str:
    r"""`text` with its lines and tabs, of which a terminal shows everything and obeys nothing: what is not printable is
    written out as in JSON (`\u001b`), so that printed JSON means the same.
    """
    return _UNUSUAL.sub(_as_in_json, text)


def lines_shown(lines: Iterable[str]) -> str:
    """`lines`, each on one line whatever is in it, for `print`."""
    return "\n".join(shown(on_one_line(line)) for line in lines)


def on_one_line(value: Any) -> Any:
    """A field's value, without line breaks where it is text, or texts."""
    if type(value) is tuple:
        return tuple(map(on_one_line, value))
    return " ".join(value.splitlines()) if type(value) is str else value


def _as_in_json(found: re.Match[str]) -> str:
    letter = found[0]
    harmless = letter.isprintable() or unicodedata.category(letter) == "Zs"
    return letter if harmless else json.dumps(letter)[1:-1]


def _written(letter: str) -> str:
    return " " if letter.isspace() else letter.encode("unicode_escape").decode("ascii")
