"""`syncd contributors --board`: who gave most, of rows that were accepted and are believed to this day."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_HEADER = ("place", "contributor", "rows, 7 days", "rows, total", "segments", "state")


def ranked(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Places from the rows of `syncd contributors --json`: by the last seven days, then by all, then by name. Equal
    rows are one place; whoever has none to its credit has none on the board.
    """
    given = [row for row in rows if row["rows_credited"] > 0]
    found: list[dict[str, Any]] = []
    for number, row in enumerate(sorted(given, key=lambda row: (*_merit(row), row["contributor"])), 1):
        is_same = bool(found) and _merit(found[-1]) == _merit(row)
        names = ("contributor", "rows_7d", "rows_credited", "accepted", "dropped", "held_until")
        found.append({"place": found[-1]["place"] if is_same else number, **{name: row[name] for name in names}})
    return found


def _merit(row: Mapping[str, Any]) -> tuple[int, int]:
    return -row["rows_7d"], -row["rows_credited"]


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """A table on a terminal, lines with tabs in a pipe, or JSON."""
    places = ranked(rows)
    if as_json:
        print(json.dumps(places, indent=2))
        return
    lines = [_cells(place) for place in places]
    if not sys.stdout.isatty():
        for line in lines:
            print("\t".join(line))
        return
    from rich.console import Console  # noqa: PLC0415 - `--help` must stay quick
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    console = Console(emoji=False, highlight=False)
    if not lines:
        console.print("nobody has rows to their credit yet")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _HEADER:
        is_name = name in {"contributor", "state"}
        table.add_column(name, justify="left" if is_name else "right", overflow="fold", no_wrap=name != "contributor")
    for line in lines:
        table.add_row(*map(Text, line))
    console.print(table)


def _cells(place: Mapping[str, Any]) -> list[str]:
    state = "dropped" if place["dropped"] else "held" if place["held_until"] else "welcome"
    numbers = (f"{place[name]:,}" for name in ("rows_7d", "rows_credited", "accepted"))
    return [str(place["place"]), place["contributor"], *numbers, state]
