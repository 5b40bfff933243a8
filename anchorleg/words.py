"""Text for people: numbers, times, bytes and slips of the pen as they say them, in lines that fit their terminal; and
foreign text made harmless. Standard library.

A terminal obeys escape sequences, a log takes a line break for a line, and one mark of Unicode turns a name around. So
whatever another machine said is made harmless once, where it enters (parsed frames and manifests, errors, what a
program over there printed), and nobody who prints it needs to think of it. What our commands print passes `shown` at
last (`anchorleg.output`): a job's last words are another program's too.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
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


_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def did_you_mean(wrong: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean "x"?` where a known name is near, else `otherwise`; without one, what there is."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(wrong, names, n=1, cutoff=0.5)
    return f'did you mean "{near[0]}"?' if near else otherwise or f"known here: {', '.join(names) or 'none'}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 job`, `2,000 jobs`; `plural` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """`42 s`, `12 min 07 s`, `3 h 05 min`, `2 d 05 h`."""
    whole = max(0, round(seconds))
    for unit, length, smaller, part in (
        ("d", _DAY_S, "h", _HOUR_S),
        ("h", _HOUR_S, "min", _MINUTE_S),
        ("min", _MINUTE_S, "s", 1),
    ):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part:02d} {smaller}"
    return f"{whole} s"


def roughly(seconds: float) -> str:
    """`42 s`, `12 min`, `30 h`, `5 d`: in the largest unit of which there are two."""
    for unit, length in (("d", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def sized(count: float) -> str:
    """Bytes: `812 B`, `1.4 MiB`, `3 GiB`, `24 TiB`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    number = f"{count:.1f}" if count < 10 else f"{count:,.0f}"
    return f"{number.removesuffix('.0')} {units[0]}"


#: Under what it continues.
INDENT = "  "
_COMMAND, _BLANK = re.compile("`[^`]*`"), "\0"


def wrapped(line: str, width: int, *, indent: str = INDENT) -> list[str]:
    """`line` in pieces of at most `width` characters. A word that is longer, as a path may be, stays whole, and so does
    a command in backticks: somebody will copy it.
    """
    own = line[: len(line) - len(line.lstrip())]
    pieces = textwrap.wrap(
        _COMMAND.sub(lambda found: found[0].replace(" ", _BLANK), line.strip()),
        max(width, len(own + indent) + 1),
        initial_indent=own,
        subsequent_indent=own + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [piece.replace(_BLANK, " ") for piece in pieces] or [""]


def folded(line: str, width: int, *, indent: str = INDENT) -> str:
    """The same as one text."""
    return "\n".join(wrapped(line, width, indent=indent))


def table_lines(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The head and the rows of a table, where that fits `width`; else one line a row, each part behind its name."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > width:
        return [", ".join(f"{name} {part}" for name, part in zip(names, row, strict=True)) for row in rows]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (names, *rows)]


#: 95 % of a normal distribution lie within so many standard errors.
_Z95 = 1.96


def wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a `share` of `count` yes-or-noes (Wilson 1927): within 0 to 1, and never of no width, so
    one success of one is no certainty. Of none nothing is known: 0 to 1.
    """
    if count <= 0:
        return 0.0, 1.0
    centre = share + _Z95**2 / (2 * count)
    half = _Z95 * math.sqrt(max(0.0, share * (1 - share)) / count + (_Z95 / (2 * count)) ** 2)
    scale = 1 + _Z95**2 / count
    return max(0.0, min(share, (centre - half) / scale)), min(1.0, max(share, (centre + half) / scale))
