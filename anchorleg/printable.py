"""Foreign text as text. Used where it enters: parsed frames and manifests, errors, what a program over there printed.

A terminal obeys escape sequences, a log takes a line break for a line, and one mark of Unicode turns a name around. So
whatever another machine said is made harmless once, and nobody who prints it needs to think of it. Standard library.
"""

from __future__ import annotations

#: Of foreign text where nobody says otherwise: some lines of a terminal.
MOST_CHARS = 2000


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


def _written(letter: str) -> str:
    return " " if letter.isspace() else letter.encode("unicode_escape").decode("ascii")
