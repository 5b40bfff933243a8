"""One table for a terminal of any width, and for a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

#: Columns that a name has at the least.
_NAME = 10


def print_table(
    out: Console,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    is_numbers: bool = False,
    best: Sequence[bool] = (),
) -> None:
    """A terminal gets a frame, in which cells break between words and no number loses a digit; a pipe gets tabs.

    `is_numbers`: set to the right. `best`: which rows stand out.
    """
    if not out.is_terminal:
        for row in [names, *rows]:
            print("\t".join(row).rstrip())
        return
    framed = Table()
    for name, width in zip(names, widths(names, rows, out.width), strict=True):
        framed.add_column(name, width=width, overflow="fold", justify="right" if is_numbers else "left")
    for row, is_best in zip(rows, best or [False] * len(rows), strict=True):
        framed.add_row(*row, style="bold green" if is_best else None)
    out.print(framed)


def widths(names: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Letters of each column of a table that is `room` wide, frame included.

    As many as it wants, or the widest give way until all fit, down to their longest words. Where that is not enough the
    words of the first column break, and those of heads may. Pure.
    """
    columns = [list(cells) for cells in zip(names, *rows, strict=True)]
    wanted = [max(map(len, cells)) for cells in columns]
    least = [max([min(_longest(name), _NAME), *map(_longest, cells)]) for name, *cells in columns]
    left = room - 3 * len(columns) - 1
    least[0] = min(least[0], max(_NAME, left - sum(least[1:])))
    while sum(wanted) > left and wanted != least:
        place = max(range(len(columns)), key=lambda column: wanted[column] - least[column])
        wanted[place] -= 1
    return wanted


def _longest(text: str) -> int:
    """Letters of its longest word."""
    return max(map(len, text.split()), default=0)
