"""Short texts that several screens share, and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rich.text import Text

from anchorleg.words import counted
from orchestrator.notation import format_duration
from orchestrator.screens.runview import StaleLedger
from orchestrator.screens.timeline import clock

#: Between two columns.
GAP = 2


def table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = ("slot",),
    gap: int = GAP,
    style: Callable[[str, str], str] = lambda _name, _cell: "",
) -> Text:
    """A table as one text; rich's own takes a second for a thousand slots. `left`: columns that are aligned there, the
    others to the right. `style`: of a column's cell.
    """
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    text = Text(no_wrap=True)
    for row in (names, *rows):
        for name, cell, width in zip(names, row, widths, strict=True):
            padded = (cell.ljust if name in left else cell.rjust)(width)
            text.append(padded, style="bold" if row is names else style(name, cell))
            text.append(" " * gap)
        text.rstrip()
        text.append("\n")
    text.rstrip()
    return text


def ranges(numbers: Sequence[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for value in numbers:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def slots_words(numbers: Sequence[int]) -> str:
    """`slot 3`, `slots 0-2, 7`."""
    return f"{'slot' if len(numbers) == 1 else 'slots'} {ranges(numbers)}"


def number(value: float | None) -> str:
    """Thousands with separators; empty for nothing."""
    return f"{value:,.0f}" if value is not None else ""


def span(seconds: float) -> str:
    """A time to wait: `3:12:45`; from a day on `2 d 5 h`, which is as exact as a forecast can be."""
    days, rest = divmod(max(0, int(seconds)), 86400)
    return f"{days} d {rest // 3600} h" if days else format_duration(seconds)


def ago(seconds: float) -> str:
    """How long ago: `42 s ago`, `0:05:12 ago`."""
    return f"{max(0.0, seconds):.0f} s ago" if seconds < 100 else f"{format_duration(seconds)} ago"


def stale_words(stale: StaleLedger, now: float, folder: str) -> str:
    """That what is shown is old, since when and why. `folder`: the run's."""
    since = clock(stale.since, now)
    if stale.free_bytes is None:
        why = f"the controller has written nothing since {since}: it hangs or cannot write (check the quota)"
        return f"{why}. The states of jobs are from then"
    full = f"is full ({counted(stale.free_bytes, 'byte')} free in {folder})"
    full, remedy = (f"has no inode left ({folder})", "Remove files") if stale.out_of_inodes else (full, "Free space")
    return f"the disk {full}: nothing could be recorded since {since}, so the states of jobs are old. {remedy}"
