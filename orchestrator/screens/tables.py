"""Tables of what is over: what a run came to, and which runs there are."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anchorleg.printable import on_one_line
from anchorleg.words import counted
from anchorleg.wrapping import INDENT, folded
from orchestrator.run.registry import Entry
from orchestrator.screens.cells import number
from orchestrator.screens.summary import RunSummary

#: Between two columns.
_GAP = 2


def summary_table(summary: RunSummary, width: int) -> RenderableType:
    """What a run came to, at its end. Where it is narrow, the evaluations have lines of their own; where the rest is
    too wide, too, it is the lines for a pipe.
    """
    names = ["slot", "jobs", "hand-overs", "steps trained", "steps lost", "idle between jobs"]
    rows = [
        [
            str(slot.slot),
            str(slot.jobs),
            str(slot.hand_overs),
            number(slot.steps),
            number(slot.steps_lost),
            f"{slot.idle_s:.1f} s in {counted(slot.gaps, 'gap')}" if slot.gaps else "none",
        ]
        for slot in summary.slots
    ]
    if _table_width(names, rows) > width:
        return Group(*(Text(folded(line, width)) for line in ("Summary", *summary_lines(summary))))
    evaluated = [slot for slot in summary.slots if slot.evaluation]
    full = [[*row, slot.evaluation] for row, slot in zip(rows, summary.slots, strict=True)]
    below: list[str] = []
    if evaluated and _table_width([*names, "evaluation"], full) <= width:
        names, rows = [*names, "evaluation"], full
    else:
        below = [f"slot {slot.slot}: evaluation {slot.evaluation}" for slot in evaluated]
    table = Table(
        box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold", title="Summary", title_justify="left"
    )
    for name in names:
        table.add_column(name, justify="left" if name == "slot" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return Group(table, *(Text(folded(line, width)) for line in (*below, *summary.lines)))


def _table_width(names: list[str], rows: list[list[str]]) -> int:
    """Of a table without a box: its widest cells, and the gaps between them."""
    widest = [max(len(cell) for cell in column) for column in zip(names, *rows, strict=True)]
    return sum(widest) + _GAP * (len(widest) - 1)


def summary_lines(summary: RunSummary) -> list[str]:
    """The same for a pipe."""
    lines = [
        f"slot {s.slot}: {counted(s.jobs, 'job')}, {counted(s.hand_overs, 'hand-over')}, "
        f"{counted(s.steps, 'step')} trained, {counted(s.steps_lost, 'step')} lost, "
        f"{s.idle_s:.1f} s idle in {counted(s.gaps, 'gap')}" + (f", evaluation {s.evaluation}" if s.evaluation else "")
        for s in summary.slots
    ]
    return lines + list(summary.lines)


def runs_table(entries: list[Entry], width: int) -> RenderableType:
    """The registered runs. Where it is narrow, a run's folder has a line of its own."""
    names = ["run", "id", "started", "folder"]
    rows = [[on_one_line(cell) for cell in (e.run_name, e.run_id, _started(e), e.run_dir)] for e in entries]
    below = _table_width(names, rows) > width
    cells = [row[: len(row) - below] for row in rows]
    widths = [max(map(len, column)) for column in zip(names[: len(names) - below], *cells, strict=True)]

    def line(row: list[str]) -> str:
        return (" " * _GAP).join(cell.ljust(room) for cell, room in zip(row, widths, strict=True)).rstrip()

    lines = [Text(line(names[: len(widths)]), style="bold")]
    for cut, row in zip(cells, rows, strict=True):
        lines += [Text(line(cut)), *([Text(f"{INDENT}{row[-1]}", style="dim")] if below else [])]
    return Group(*lines)


def _started(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.registered_at))
